// A panel of HTML that Python made and escaped: shows it, and says which button was clicked.

/**
 * Name an element by its data-* attributes, so that it is found again in new HTML.
 * @param {HTMLElement} element
 * @returns {string} empty when it has none
 */
function nameOf(element) {
  const data = Object.entries(element.dataset).sort();
  return data.length ? JSON.stringify(data) : "";
}

/** Give the buttons of a name: a call can be named in several places. */
function named(root, name) {
  return [...root.querySelectorAll("button")].filter((button) => nameOf(button) === name);
}

/** Name the open and closed details of a panel by their order. */
function openDetails(root) {
  return [...root.querySelectorAll("details")].map((each) => each.open);
}

/** Remember what the reader has done to the page: focus, scrolling and opened parts. */
function remember(root) {
  const active = root.getRootNode().activeElement;
  const focused = active && root.contains(active) ? nameOf(active) : "";
  const place = focused ? named(root, focused).indexOf(active) : -1;
  return { focused, place, top: root.scrollTop, left: root.scrollLeft, open: openDetails(root) };
}

/** Put back what was remembered, as far as it is still there. */
function putBack(root, kept) {
  const details = [...root.querySelectorAll("details")];
  if (details.length === kept.open.length) details.forEach((each, at) => { each.open = kept.open[at]; });
  const same = kept.focused ? named(root, kept.focused) : [];
  const button = same[Math.min(kept.place, same.length - 1)];
  if (button) button.focus({ preventScroll: true });
  root.scrollTop = kept.top;
  root.scrollLeft = kept.left;
}

/** Show the HTML of the model, which Python has escaped. */
function show(model, root) {
  const kept = remember(root);
  root.innerHTML = model.get("html");
  putBack(root, kept);
  root.dataset.seq = String(Number(root.dataset.seq || 0) + 1);
}

/** Tell Python which button was clicked, by its data-* attributes. */
function act(model, event) {
  const button = event.target.closest("button");
  if (button && nameOf(button)) model.send({ type: "act", data: { ...button.dataset } });
}

/** Keep a notebook from taking plain keys as its own commands; Ctrl+S and its like are the notebook's. */
function keepPlainKeys(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.className = "detlab-html-panel";
  el.append(root);
  const changed = () => show(model, root);
  root.addEventListener("click", (event) => act(model, event));
  root.addEventListener("keydown", keepPlainKeys);
  model.on("change:html", changed);
  changed();
  return () => model.off("change:html", changed);
}

export default { render };
