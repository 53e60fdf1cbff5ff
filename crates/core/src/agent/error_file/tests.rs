use super::*;

#[test]
fn both_forms_are_read() {
    let record = r#"{"message": {"message": "ValueError: no", "extraInfo":
        {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}"#;
    let error = ErrorFile {
        message: "ValueError: no".into(),
        traceback: Some("Traceback ...".into()),
        timestamp: Some(1_700_000_000),
    };
    assert_eq!(ErrorFile::parse(record).unwrap(), error);
    let plain = |text: &str| {
        let found = ErrorFile::parse(text).unwrap();
        assert_eq!((found.message.as_str(), found.traceback), ("out of memory", None));
        found.timestamp
    };
    assert_eq!(plain(r#"{"message": "out of memory", "timestamp": 17}"#), Some(17));
    assert_eq!(plain(r#"{"message": "out of memory", "timestamp": "17"}"#), Some(17));
    assert_eq!(plain(r#"{"message": "out of memory"}"#), None);
    assert_eq!(plain(r#"{"message": {"message": "out of memory"}}"#), None);
}

#[test]
fn what_is_written_can_be_read() {
    let full = ErrorFile {
        message: "RuntimeError: \"quoted\"\n".into(),
        traceback: Some("line 1".into()),
        timestamp: Some(5),
    };
    for error in [full, ErrorFile { message: "short".into(), ..ErrorFile::default() }] {
        assert_eq!(ErrorFile::parse(&error.format()).unwrap(), error);
    }
}

#[test]
fn other_shapes_are_refused_with_what_they_are() {
    for text in ["[]", "{}", "3", r#"{"message": 3}"#, r#"{"message": {"text": "x"}}"#] {
        let error = ErrorFile::parse(text).unwrap_err();
        assert!(matches!(error, ErrorFileError::NoMessage(_)), "{text}: {error}");
        assert!(error.to_string().contains("give {\"message\""), "{error}");
    }
    assert!(matches!(ErrorFile::parse("Traceback"), Err(ErrorFileError::NotJson(_))));
}

#[test]
fn the_exit_code_is_added_where_there_is_a_place_for_it() {
    let record = r#"{"message":{"message":"m","mine":[1]},"other":true}"#;
    let with: Value = serde_json::from_str(&with_exit_code(record, 7).unwrap()).unwrap();
    let expected = json!({"message": {"message": "m", "mine": [1], "errorCode": 7}, "other": true});
    assert_eq!(with, expected);
    let plain = r#"{"message":"m"}"#;
    assert_eq!(with_exit_code(plain, 7).unwrap(), plain);
    assert!(with_exit_code("", 7).is_err());
}
