// Lets a chart of plotly follow the box that it stands in: by itself it looks only when the window changes.

/** Tell the charts of the page whenever the box around this element has another size. */
function render({ el }) {
  const observer = new ResizeObserver(() => window.dispatchEvent(new Event("resize")));
  const start = () => {
    if (el.isConnected) observer.observe(el.parentElement);
    else frame = requestAnimationFrame(start);
  };
  let frame = requestAnimationFrame(start);
  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
  };
}

export default { render };
