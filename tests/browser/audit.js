// Looks over what is shown below a root: what sticks out, overlaps, is cut, is too small to read, or scrolls
// sideways though no ancestor matches the selector `mayScroll`.
(root, mayScroll) => {
  const SMALLEST_PX = 12;
  const SLACK_PX = 1.5; // boxes of text are a little taller than its letters

  const RING_PX = 8; // room for a focus ring around what fills its parent

  const name = (element) => {
    const text = (element.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 40);
    return `<${element.tagName.toLowerCase()} class="${element.getAttribute('class') || ''}"> ${text}`;
  };

  /** Ancestors from the element up to the root. */
  const upwards = (element) => {
    const line = [];
    for (let at = element; at && at !== root.parentElement; at = at.parentElement) line.push(at);
    return line;
  };

  const clips = (element) => getComputedStyle(element).overflowX !== 'visible' && element.tagName !== 'svg';

  /** The part of a box that no scrolling or clipping ancestor hides. */
  const clipped = (box, element) => {
    let { left, top, right, bottom } = box;
    for (const at of upwards(element).slice(1).filter(clips)) {
      const edge = at.getBoundingClientRect();
      [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
      [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
    }
    return { left, top, right, bottom };
  };

  const shown = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true });

  const filled = (box) => box.right - box.left > 2 && box.bottom - box.top > 2;

  /** Every text that is seen: its element, and the boxes of its lines. */
  const texts = () => {
    const found = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.nodeValue.trim() || !shown(element) || element.closest('option, title, style, script')) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      const boxes = Array.from(range.getClientRects(), (box) => clipped(box, element)).filter(filled);
      if (boxes.length) found.push({ element, boxes });
    }
    return found;
  };

  const meet = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK_PX &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2 * SLACK_PX;

  const overlaps = (all) => {
    const found = [];
    all.forEach((one, index) => {
      for (const other of all.slice(index + 1)) {
        if (one.element === other.element) continue;
        if (one.boxes.some((a) => other.boxes.some((b) => meet(a, b)))) {
          found.push(`${name(one.element)} lies over ${name(other.element)}`);
        }
      }
    });
    return found;
  };

  /** Elements beyond the right edge of the root that no scrolling ancestor holds. */
  const overflow = () => {
    const edge = root.getBoundingClientRect().right + RING_PX;
    const held = (element) => upwards(element).slice(1).some((at) => at !== root && clips(at));
    const out = Array.from(root.querySelectorAll('*'))
      .filter((element) => shown(element) && !held(element))
      .filter((element) => {
        const box = element.getBoundingClientRect();
        return filled(box) && box.right > edge;
      })
      .map(name);
    const page = document.scrollingElement;
    if (page.scrollWidth > page.clientWidth + 1) out.push(`the page is ${page.scrollWidth} px wide`);
    return out;
  };

  /** Text whose end is clipped away with no ellipsis and no way to scroll there. */
  const cut = (all) =>
    all
      .map(({ element }) => element)
      .filter((element) => ['hidden', 'clip'].includes(getComputedStyle(element).overflowX))
      .filter((element) => getComputedStyle(element).textOverflow !== 'ellipsis')
      .filter((element) => element.scrollWidth > element.clientWidth + SLACK_PX)
      .map(name);

  const sideways = () =>
    Array.from(root.querySelectorAll('*'))
      .filter((element) => ['auto', 'scroll'].includes(getComputedStyle(element).overflowX))
      .filter((element) => shown(element) && element.scrollWidth > element.clientWidth + SLACK_PX)
      .filter((element) => !element.closest(mayScroll))
      .map(name);

  const all = texts();
  return {
    sideways: sideways(),
    overflow: overflow(),
    overlaps: overlaps(all),
    cut: cut(all),
    small: all
      .filter(({ element }) => parseFloat(getComputedStyle(element).fontSize) < SMALLEST_PX)
      .map(({ element }) => name(element)),
  };
}
