// Copies the lines that bring back what is shown, shows them too, and lets Escape clear the selection.
//
// Values of the model: code (set in Python), shown (whether the lines are shown, set here). Messages sent:
// {type: "clear"} when Escape is pressed anywhere in the explorer that holds this element.

/** Copy the text of a text area; say whether the browser let us. */
async function copy(area) {
  try {
    await navigator.clipboard.writeText(area.value);
    return true;
  } catch {
    area.focus();
    area.select();
    return document.execCommand("copy"); // a page without https has no other clipboard
  }
}

function make(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function render({ model, el }) {
  const area = make("textarea", { readOnly: true, spellcheck: false, className: "dl-code", rows: 12 });
  area.setAttribute("aria-label", "Python that brings back what is shown");
  const said = make("span", { className: "dl-said" });
  said.setAttribute("role", "status");
  const copyButton = make("button", { type: "button", className: "dl-copy-code" }, "Copy as code");
  const closeButton = make("button", { type: "button", className: "dl-close-code" }, "close");
  const line = make("div", { className: "dl-code-line" }, copyButton, closeButton, said);
  el.classList.add("detlab-panel", "dl-copy-panel");
  el.append(line, area);

  function show() {
    area.value = model.get("code");
    const isShown = model.get("shown");
    area.hidden = closeButton.hidden = !isShown;
    el.classList.toggle("dl-shown", isShown);
  }
  function open(isOpen) {
    model.set("shown", isOpen);
    model.save_changes();
    show();
  }
  copyButton.addEventListener("click", async () => {
    open(true);
    said.textContent = (await copy(area)) ? "copied" : "select the lines and press Ctrl+C";
  });
  closeButton.addEventListener("click", () => {
    open(false);
    said.textContent = "";
    copyButton.focus();
  });

  function onKey(event) {
    const explorer = el.closest(".detlab-explorer");
    const isTyping = event.target.closest?.("input, textarea, select"); // there Escape has other uses
    if (event.key === "Escape" && !isTyping && explorer?.contains(event.target)) model.send({ type: "clear" });
  }
  document.addEventListener("keydown", onKey, true); // panels keep their keys from bubbling
  model.on("change:code", show);
  model.on("change:shown", show);
  show();
  return () => document.removeEventListener("keydown", onKey, true);
}

export default { render };
