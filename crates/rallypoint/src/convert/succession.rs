//! The answer of a host that may serve.

use rallypoint_core::rendezvous::succession::order::HostAnswer;

use crate::proto::succession as pb;

/// The answer of a host, and the id of its node; nothing if it belongs to another run than `run_id`.
pub(crate) fn host_answer(run_id: &str, answer: pb::AskResponse) -> Option<(HostAnswer, String)> {
    let pb::AskResponse { run_id: of, serves, round, node_id } = answer;
    let answer = match serves {
        true => HostAnswer::Serves { formed: round },
        false => HostAnswer::StandsBy { remembers: round },
    };
    (of == run_id).then_some((answer, node_id))
}
