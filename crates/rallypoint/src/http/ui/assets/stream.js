// Server-sent events, with a reconnection that also follows refusals, which EventSource gives up on.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;
/** A hidden tab gives its connection back after this time. */
const UNSEEN = 60000;

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Why a path is refused, if the server says so. */
async function refusal(path) {
  const answer = await fetch(path);
  if (answer.ok) return null;
  const text = (await answer.text()).trim();
  return answer.headers.get('content-type')?.includes('json') ? JSON.parse(text).why : text;
}

/**
 * Follows one run, or all runs without one, until it is closed. `on.data` gets each message, and `on.away` a sentence
 * when there is no data to be had, which the next message ends.
 */
export function follow(run, on) {
  const name = run && encodeURIComponent(run);
  const path = run ? `api/watch?run=${name}` : 'api/watch';
  const event = run ? 'run' : 'runs';
  let source, timer, unseen;
  let pause = FIRST_PAUSE;
  let ended = false;

  function open() {
    source = new EventSource(path);
    source.addEventListener(event, (message) => {
      pause = FIRST_PAUSE;
      on.data(JSON.parse(message.data));
    });
    for (const [kind, words] of [['gone', ''], ['away', 'The server does not answer: ']]) {
      source.addEventListener(kind, (message) => {
        pause = FIRST_PAUSE;
        on.away(capital(`${words}${JSON.parse(message.data).why}`));
      });
    }
    source.onerror = retry;
  }

  async function retry() {
    source.close();
    const closed = source;
    const said = await refusal(run ? `api/runs/${name}` : 'api/runs').catch(() => null);
    if (ended || source !== closed) return;
    on.away(capital(said ?? 'this page has lost its connection, and tries again.'));
    timer = setTimeout(open, pause);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }

  function look() {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(stop, UNSEEN);
    else if (source.readyState === EventSource.CLOSED) {
      clearTimeout(timer);
      open();
    }
  }

  function stop() {
    clearTimeout(timer);
    source.close();
  }

  open();
  document.addEventListener('visibilitychange', look);
  return () => {
    ended = true;
    document.removeEventListener('visibilitychange', look);
    clearTimeout(unseen);
    stop();
  };
}
