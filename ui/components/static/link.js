// The link: every widget points at the same token, through one event on the document.

const LINK = "cacheblend:token";

// What everything points at, kept on the document so that a widget that appears later agrees.
function pointed(run) {
  const now = document.cacheblendToken;
  return now && now.run === run ? now : { run, token: null, query: null, locked: false };
}

function point(detail) {
  document.cacheblendToken = detail;
  document.dispatchEvent(new CustomEvent(LINK, { detail }));
}

function hover(run, token, query = null) {
  const now = pointed(run);
  if (now.locked || (now.token === token && now.query === query)) return;
  point({ run, token, query, locked: false });
}

function toggleLock(run, token, query = null) {
  const now = pointed(run);
  const isSame = now.locked && now.token === token && now.query === query;
  point({ run, token, query, locked: !isSame });
}

function release(run) {
  if (pointed(run).locked) point({ run, token: null, query: null, locked: false });
}

// Calls back on every change of the pointed token, of the page's theme and of the widget's width, while it is there.
function follow(onToken, onLook) {
  const closing = new AbortController();
  const ifThere = (act) => (event) => (element.isConnected ? act(event) : closing.abort());
  document.addEventListener(LINK, ifThere(onToken), { signal: closing.signal });
  const escape = ifThere((event) => event.key === "Escape" && document.cacheblendToken && release(document.cacheblendToken.run));
  document.addEventListener("keydown", escape, { signal: closing.signal });
  const resize = new ResizeObserver(() => requestAnimationFrame(onLook));
  resize.observe(element);
  const look = new MutationObserver(() => requestAnimationFrame(onLook));
  look.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  closing.signal.addEventListener("abort", () => {
    resize.disconnect();
    look.disconnect();
  });
}
