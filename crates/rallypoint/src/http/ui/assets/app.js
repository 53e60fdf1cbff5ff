// The page: which view the address asks for, the stream that feeds it, and the keys that work everywhere.

import { h, nodePath, runPath, say, setNow, tick } from './dom.js';
import { nodeView } from './node.js';
import { runView } from './run.js';
import { runsView, serverView } from './runs.js';
import { follow } from './stream.js';

const at = (id) => document.getElementById(id);

/** The stream that feeds the view: its name, its last message, and the way to end it. */
let feed = { name: null, last: null, end() {} };
let view = null;
/** The view of the run that was looked at last: a board of thousands of nodes is built once. */
let board = { run: null, view: null };

function place() {
  try {
    const [kind, run, , node] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
    if (kind === 'run' && run) return node ? { kind: 'node', run, node } : { kind: 'run', run };
    return { kind: kind === 'server' ? 'server' : 'runs' };
  } catch {
    return { kind: 'runs' };
  }
}

function show() {
  const here = place();
  const before = view?.here;
  if (here.kind === 'runs') view = runsView();
  else if (here.kind === 'server') view = serverView();
  else {
    if (board.run !== here.run) board = { run: here.run, view: runView(here.run) };
    view = here.kind === 'run' ? board.view : nodeView(here.run, here.node);
  }
  view.here = here;
  document.title = `${view.title} – Rallypoint`;
  crumbs(here);
  at('main').replaceChildren(view.element);
  scrollTo(0, 0);
  subscribe(here);
  if (feed.last) take(feed.last);
  // The board keeps its position while a node is shown.
  const left = here.kind === 'run' && before?.kind === 'node' && view.focusNode(before.node);
  if (!left) view.element.querySelector('h1').focus({ preventScroll: true });
}

function crumbs({ kind, run, node }) {
  const trail = [['Rallypoint', '#/']];
  if (kind === 'server') trail.push(['Server', '#/server']);
  if (run) trail.push([run, runPath(run)]);
  if (node) trail.push([node, nodePath(run, node)]);
  at('crumbs').replaceChildren(h('ol', {}, trail.map(([name, href], depth) =>
    h('li', {}, h('a', { href, 'aria-current': depth === trail.length - 1 && 'page' }, name)))));
}

function subscribe({ run }) {
  const name = run ?? '';
  if (feed.name === name) return;
  feed.end();
  feed = { name, last: null, end() {} };
  say(at('link'), 'connecting');
  feed.end = follow(run, { data: take, away });
}

function take(data) {
  feed.last = data;
  setNow(data.now_unix_ms);
  say(at('link'), 'live');
  at('link').className = 'live';
  at('away').hidden = true;
  at('main').classList.remove('old');
  // The sentence for those who listen; it changes when the run does, not with every age.
  const told = view.update(data);
  if (told) say(at('told'), told);
  document.body.dataset.updates = Number(document.body.dataset.updates ?? 0) + 1;
}

function away(why) {
  say(at('link'), feed.last ? `as of ${new Date().toLocaleTimeString()}` : 'no data');
  at('link').className = '';
  say(at('away'), why);
  at('away').hidden = false;
  at('main').classList.add('old');
}

function back() {
  const { kind, run } = place();
  if (kind !== 'runs') location.hash = kind === 'node' ? runPath(run) : '#/';
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || at('help').open) return;
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === 'Escape') {
    if (typing && event.target.value) return;
    back();
  } else if (typing) {
    return;
  } else if (event.key === '?') {
    at('help').showModal();
  } else if (event.key === 'ArrowDown' && document.activeElement?.tagName === 'H1' && place().kind === 'runs') {
    view.element.querySelector('tbody a')?.focus();
  } else if (!view.key?.(event.key)) {
    return;
  }
  event.preventDefault();
});

at('keys').addEventListener('click', () => at('help').showModal());
addEventListener('hashchange', show);
setInterval(tick, 1000);
show();
