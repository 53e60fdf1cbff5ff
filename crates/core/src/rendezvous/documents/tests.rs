use super::*;

fn active() -> Active {
    let coordinator = NodeName { id: "a".into(), address: "host".into() };
    Active {
        limits: Limits { min: 1, max: 2 },
        rank_policy: "stable".into(),
        reason: "the run begins".into(),
        began: 4,
        previous: 2,
        world: 2,
        rank0: "a".into(),
        ..Active::new(RunHistory::new(7), 3, Status::Final, coordinator)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_document_says_its_format_first() {
    assert!(text(&encode(&active())).starts_with("{\"format\":1,"));
    let back: Active = decode(b"k", &encode(&active())).unwrap();
    assert_eq!(back, active());
}

#[test]
fn a_field_of_a_later_version_is_kept_when_the_document_is_rewritten() {
    let later =
        text(&encode(&active())).replace("\"round\":3", "\"round\":3,\"mood\":[1,{\"a\":2}]");
    let read: Active = decode(b"k", later.as_bytes()).unwrap();
    let noted = Active { waiting: 1, ..read };
    let rewritten = text(&encode(&noted));
    assert!(rewritten.contains("\"mood\":[1,{\"a\":2}]"), "{rewritten}");
    assert_eq!(rewritten.matches("format").count(), 1, "{rewritten}");
    let rounds: Rounds = decode(b"k", br#"{"format":1,"round":2,"formed":1,"mood":true}"#).unwrap();
    assert!(text(&encode(&rounds)).contains("mood"));
}

#[test]
fn a_field_that_an_earlier_version_did_not_write_has_its_default() {
    let least = r#"{"format":1,"history":"0000000000000007","round":3,"status":"final",
        "limits":{"min":1,"max":2},"rank_policy":"stable","coordinator":{"id":"a"}}"#;
    let read: Active = decode(b"k", least.as_bytes()).unwrap();
    assert_eq!((read.world, read.waiting, read.store), (0, 0, None));
    let joined: Joined = decode(b"k", br#"{"format":1}"#).unwrap();
    assert_eq!(joined, Joined::default());
    let node: NodeDocument = decode(b"k", br#"{"format":1,"id":"a"}"#).unwrap();
    assert_eq!(node.id, "a");
}

#[test]
fn another_format_is_refused_by_naming_both() {
    let later = text(&encode(&active())).replace("\"format\":1", "\"format\":2");
    let error = decode::<Active>(b"rdzv/active", later.as_bytes()).unwrap_err();
    assert_eq!(error, DocumentError::Format { key: "rdzv/active".into(), found: 2 });
    let sentence = error.to_string();
    assert!(sentence.contains("format 2") && sentence.contains("format 1"), "{sentence}");
    // A later format need not have the fields of this one.
    let error = decode::<Active>(b"k", br#"{"format":9,"all":"new"}"#).unwrap_err();
    assert_eq!(error, DocumentError::Format { key: "k".into(), found: 9 });
}

#[test]
fn a_run_from_before_the_formats_is_named_and_not_misread() {
    let old = br#"{"round":1,"status":"final","author":{"id":"a","address":"h"},"leader":"a"}"#;
    let error = decode::<Active>(b"k", old).unwrap_err();
    assert_eq!(error, DocumentError::Format { key: "k".into(), found: 0 });
}

#[test]
fn what_is_no_document_is_said_to_be_none() {
    for bad in [&b""[..], b"[]", b"{", b"7", br#"{"format":1}"#, br#"{"format":1,"round":-1}"#] {
        let error = decode::<Active>(b"k", bad).unwrap_err();
        assert!(matches!(error, DocumentError::Corrupt { .. }), "{error}");
    }
}

#[test]
fn an_outcome_that_a_later_version_knows_is_no_success() {
    for (text, outcome) in [
        ("\"succeeded\"", RunOutcome::Succeeded),
        ("\"failed\"", RunOutcome::Failed),
        ("\"non_retryable\"", RunOutcome::NonRetryable),
        ("\"preempted\"", RunOutcome::Failed),
    ] {
        assert_eq!(serde_json::from_str::<RunOutcome>(text).unwrap(), outcome, "{text}");
    }
}
