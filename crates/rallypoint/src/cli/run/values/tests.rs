use super::*;

#[test]
fn numbers_of_nodes() {
    for (text, expected) in [("1", Some((1, 1))), ("2:4", Some((2, 4))), (" 3 : 3 ", Some((3, 3)))]
    {
        let found = text.parse::<Nodes>().ok().map(|nodes| (nodes.min, nodes.max));
        assert_eq!(found, expected, "{text}");
    }
    for text in ["", "0", "0:1", "4:2", "1:2:3", ":", "2:", "a", "-1", "1.5"] {
        assert!(text.parse::<Nodes>().is_err(), "{text}");
    }
}

#[test]
fn times_are_finite() {
    for text in ["", "-0.1", "nan", "inf", "1e99", "1s"] {
        assert!(seconds(text).is_err(), "{text}");
    }
    assert_eq!(seconds("0"), Ok(Duration::ZERO));
    assert_eq!("none".parse(), Ok(TimeLimit(None)));
    assert_eq!("0".parse(), Ok(TimeLimit(Some(Duration::ZERO))));
}

#[test]
fn signals_are_those_that_can_be_handled() {
    assert_eq!("SIGTERM, SIGINT,SIGTERM".parse(), Ok(SignalList(vec![15, 2])));
    for name in ["SIGKILL", "SIGSTOP", "SIGSEGV", "TERM", "15", ""] {
        let error = name.parse::<SignalList>().unwrap_err();
        let words = format!("{name:?} is no signal that can be handled; there are SIGHUP, SIGINT");
        assert!(error.starts_with(&words), "{error}");
    }
    assert_eq!("30".parse(), Ok(NoticeOption { time: Duration::from_secs(30), signal: 10 }));
    assert!("30:".parse::<NoticeOption>().is_err());
    assert!(":SIGUSR1".parse::<NoticeOption>().is_err());
}

#[test]
fn streams_of_workers_beyond_the_tenth() {
    let both = Streams { stdout: true, stderr: true };
    let selection: StreamSelection = "0:0, 12:3".parse().unwrap();
    assert_eq!(selection.of(12), both);
    assert_eq!([0, 1, 2].map(|rank| selection.of(rank)), [Streams::default(); 3]);
    assert_eq!("3".parse::<StreamSelection>().unwrap().of(99), both);
    for text in ["", "4", "-1", "0:", "0:4", "a:1", "0:1,", "0:1,2", ":", "0:1:2"] {
        assert!(text.parse::<StreamSelection>().is_err(), "{text}");
    }
}

#[test]
fn no_filter_shows_everybody() {
    let all: LocalRanks = " ".parse().unwrap();
    assert!(all.has(0) && all.has(40));
    let some: LocalRanks = "1, 11".parse().unwrap();
    assert!(some.has(11) && !some.has(0));
    assert!("1,".parse::<LocalRanks>().is_err());
}
