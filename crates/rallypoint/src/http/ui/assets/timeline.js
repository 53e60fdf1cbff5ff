// The rounds of a run, the latest first: how long each formed and ran, and a sentence for each turn, from the events.

import { age, brief, clock, h, many, now as clockNow, renew, sentence, svg } from './dom.js';

const list = (names, most = 4) =>
  names.length > most ? `${names.slice(0, most).join(', ')} and ${names.length - most} more` : names.join(', ');

/** What an event says; a later version may have kinds that are shown by their name. */
function turn(event) {
  const { kind, why } = event;
  const because = why ? `: ${why}` : '';
  switch (kind) {
    case 'round_opened': return `Round ${event.round} takes nodes${because}`;
    case 'round_frozen': return `It takes no more nodes, and has ${many(event.size, 'node')}${because}`;
    case 'round_final': return `The group of ${many(event.size, 'node')} has formed; ${event.rank0} has rank 0${because}`;
    case 'members_lost': return `${many(event.count, 'member')} lost${event.why ? because : event.nodes?.length ? `: ${list(event.nodes)}` : ''}`;
    case 'losses_proved': return `${list(event.nodes ?? [])} ${event.nodes?.length === 1 ? 'is' : 'are'} ${event.why || 'proved dead'}`;
    case 'nodes_waiting': return `${many(event.count, 'late node')} ${event.count === 1 ? 'waits' : 'wait'} to join${because}`;
    case 'coordinator_lost': return `The coordinator ${event.coordinator} is lost${because}`;
    case 'run_closed': return `${event.by} closes the run, which ${{ succeeded: 'succeeded', failed: 'failed' }[event.outcome] ?? 'failed for good'}${because}`;
    case 'run_reopened': return `The run is opened again${because}`;
    default: return `${kind.replaceAll('_', ' ')}${because}`;
  }
}

/** An action of an operator, as an event of the timeline. */
export function actionTurn(action) {
  const what = { close: 'closed the run', reopen: 'opened the run again', overrule: 'let the run go on without the rest of its last group', evict: `evicted ${action.node}` }[action.operation] ?? action.operation;
  return `${action.by} ${what}${action.reason ? `: ${action.reason}` : ''}`;
}

/** The events in their order, and between them what operators did. Clocks of hosts differ, so times order no events. */
export function turnsOf(events, actions) {
  const turns = events.map((event) => ({ at: Date.parse(event.time), round: event.round, kind: event.kind, seq: event.seq, text: sentence(turn(event)), event }));
  for (const action of actions.filter((action) => action.at != null)) {
    const later = turns.findIndex(({ at }) => at > action.at);
    const done = { at: action.at, round: action.round, kind: 'operator', text: sentence(actionTurn(action)), action };
    turns.splice(later < 0 ? turns.length : later, 0, done);
  }
  return turns;
}

/** One turn as an item of a list. */
export const turnItem = ({ at, kind, seq, text, event }) =>
  h('li', { class: `turn ${kind}`, 'data-kind': kind, 'data-seq': seq, 'data-round': event?.round },
    h('time', { datetime: new Date(at).toISOString(), title: new Date(at).toISOString() }, clock(at)), h('span', {}, text));

/** The rounds: their turns, and when each stage began. */
export function roundsOf(turns) {
  const rounds = [];
  for (const turn of turns) {
    // A run that was closed begins its next round under another number; what belongs to none stays where it is.
    let round = rounds.find((known) => known.round === turn.round);
    // The proof of a loss comes in the next round. Alone it makes no round of the past.
    if (!round && turn.kind === 'losses_proved') continue;
    if (!round) rounds.push((round = { round: turn.round, turns: [] }));
    round.turns.push(turn);
  }
  rounds.forEach((round, place) => {
    const first = (...kinds) => round.turns.find((turn) => kinds.includes(turn.kind))?.at;
    round.opened = first('round_opened');
    round.frozen = first('round_frozen');
    round.final = first('round_final');
    round.closed = first('run_closed');
    round.ended = first('members_lost', 'run_closed') ?? rounds[place + 1]?.turns[0].at;
  });
  return rounds;
}

/** The stages of a round, each with its length: gathering, confirming, running. */
export function stagesOf({ opened, frozen, final, ended }, now) {
  const end = ended ?? now;
  const stage = (name, from, to) => (from == null ? null : { name, from, ms: Math.max(0, (to ?? end) - from), over: to != null || ended != null });
  return [stage('gather', opened, frozen), frozen == null ? null : stage('confirm', frozen, final), stage('run', final, ended)].filter(Boolean);
}

const WORDS = { gather: ['gathers', 'gathered for'], confirm: ['confirms', 'confirmed in'], run: ['runs', 'ran for'] };

/** Bars of the time that a round took to form, all rounds to one scale. */
function bars(stages, longest) {
  let x = 0;
  const parts = stages.filter(({ name }) => name !== 'run').map(({ name, ms }) => {
    const width = Math.max(1, (ms / longest) * 200);
    const bar = svg('rect', { class: name, x, y: 0, width, height: 10 });
    x += width;
    return bar;
  });
  return svg('svg', { class: 'bars', viewBox: '0 0 204 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, parts);
}

/** The whole life of the run to scale: when it ran, when it formed a group, and when it did neither. */
function strip(rounds, now) {
  const begin = rounds[0].turns[0].at;
  const last = rounds.at(-1);
  const end = Math.max(last.closed ?? now, begin + 1);
  const x = (at) => ((at - begin) / (end - begin)) * 1000;
  const stages = rounds.flatMap((round) => stagesOf(round, end));
  const running = stages.filter(({ name }) => name === 'run');
  // What is short is drawn last, and never too narrow to be seen.
  const parts = [...running, ...stages.filter(({ name }) => name !== 'run')].map(({ name, from, ms }) =>
    svg('rect', { class: name, x: x(from), y: 0, width: Math.max(2.5, x(from + ms) - x(from)), height: 12 }));
  const ran = running.reduce((sum, { ms }) => sum + ms, 0);
  const share = Math.min(100, Math.floor((ran / (end - begin)) * 1000) / 10);
  return h('figure', { class: 'strip' },
    svg('svg', { viewBox: '0 0 1000 12', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, parts),
    h('figcaption', {}, h('span', {}, clock(begin)),
      h('span', {}, `A group ran for ${age(ran)} of ${age(end - begin)}, ${share} %`), h('span', {}, last.closed ? clock(end) : 'now')));
}

export function timelineView() {
  const over = h('div');
  const rounds = h('ol', { class: 'rounds', reversed: true });
  const empty = h('p', { class: 'empty', hidden: true }, 'The server holds no events of this run.');
  const element = h('div', {}, over, empty, rounds);

  function update({ events = [], status }) {
    const turns = turnsOf(events, status.actions);
    const known = roundsOf(turns);
    empty.hidden = known.length > 0;
    const now = clockNow();
    // A round that goes on grows; the second is fine enough for that.
    renew(over, known.length && `${turns.length} ${Math.floor(now / 1000)}`, () => (known.length ? [strip(known, now)] : []));
    const forming = (round) => stagesOf(round, now).filter(({ name }) => name !== 'run').reduce((sum, { ms }) => sum + ms, 0);
    const longest = Math.max(1, ...known.map(forming));
    const open = known.some((round) => round.final == null && round.ended == null);
    renew(rounds, `${events.at(-1)?.seq} ${turns.length} ${open ? Math.floor(now / 1000) : ''}`, () => [...known].reverse().map((round) => {
      const stages = stagesOf(round, now);
      const words = stages.map(({ name, ms, from, over }) => h('span', { class: `stage ${name}` },
        h('i', { class: `key ${name}`, 'aria-hidden': 'true' }),
        over ? `${WORDS[name][1]} ${brief(ms)}` : [`${WORDS[name][0]}, for `, h('time', { 'data-since': from }, age(ms))]));
      return h('li', { class: 'round' },
        h('div', { class: 'round-head' }, h('h3', {}, round.round ? `Round ${round.round}` : 'Before the first round'), bars(stages, longest), h('p', { class: 'stages' }, words)),
        h('ol', { class: 'turns' }, round.turns.map(turnItem)));
    }));
  }

  return { element, update };
}
