// Server-sent events, with a reconnection that also follows refusals, which EventSource gives up on.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;
/** A tab that nobody looks at gives its connection back after this time. */
const UNSEEN = 60000;

/**
 * Follows one path until it is closed. `on.data` gets each message, `on.away` a sentence when there is no data to be
 * had and why; the next message ends that. `on.refused` may return a better sentence.
 */
export function follow(path, event, on) {
  let source, timer, unseen;
  let pause = FIRST_PAUSE;
  let ended = false;

  function open() {
    source = new EventSource(path);
    source.addEventListener(event, (message) => {
      pause = FIRST_PAUSE;
      on.data(JSON.parse(message.data));
    });
    source.addEventListener('away', (message) => {
      pause = FIRST_PAUSE;
      on.away(`The server does not answer: ${JSON.parse(message.data).why}`);
    });
    source.onerror = retry;
  }

  async function retry() {
    source.close();
    const closed = source;
    const why = (await on.refused?.().catch(() => null)) ?? 'This page has lost its connection, and tries again.';
    if (ended || source !== closed) return;
    on.away(why);
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
