//! The etcd cluster that a job brings.

use super::*;

const LINE: [&str; 4] = ["--engine=etcd", "--nnodes=4", "--rdzv-id=job", "true"];

fn with<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [options, &LINE].concat()
}

/// The test's host has 10.0.0.1, which `alias` means.
#[test]
fn a_host_that_is_named_runs_a_member_and_others_only_use_the_cluster() {
    let named = plan(&with(&["--rdzv-endpoint=other,alias,10.0.0.3:7000"]));
    assert_eq!(named.rendezvous.parameters.backend, "etcd");
    assert_eq!(named.rendezvous.parameters.endpoint, "other:29400,alias:29400,10.0.0.3:7000");
    let member = named.etcd_member.unwrap();
    assert_eq!((member.own, member.run_id.as_str()), (1, "job"));
    assert_eq!(member.client_address(), "10.0.0.1:29400".parse().unwrap());
    assert!(plan(&with(&["--rdzv-endpoint=other,10.0.0.4,10.0.0.3"])).etcd_member.is_none());
    assert!(plan(&["--rdzv-endpoint=alias,b,c", "true"]).etcd_member.is_none());
    let Ok(RunAction::Show(text)) =
        errand_on(&host(&[]), &with(&["--dry-run", "--rdzv-endpoint=a,alias,c"]))
    else {
        panic!()
    };
    assert!(
        text.contains("one of 3 etcds, as a child of this process, at 10.0.0.1:29400"),
        "{text}"
    );
    assert!(text.contains("a does not resolve on this host yet"), "{text}");
}

#[test]
fn what_cannot_be_a_cluster_is_refused_by_name() {
    let three = "--rdzv-endpoint=other,alias,10.0.0.3";
    for (options, words) in [
        (&["--rdzv-endpoint=alias"][..], "--rdzv-endpoint \"alias:29400\": --engine etcd runs one"),
        (&["--rdzv-endpoint=a,b"], "these are 2; name three hosts"),
        (&["--rdzv-endpoint=a,b,c,d"], "these are 4; name three hosts"),
        (&["--rdzv-endpoint=other,alias,10.0.0.1"], "it is the same host as alias, this one"),
        (&["--rdzv-endpoint=other,10.0.0.4,127.0.0.1"], "other hosts mean themselves by it"),
        (&["--rdzv-endpoint=https://other,https://alias,https://10.0.0.3"], "cacert is missing"),
        (&[three, "--cacert=ca.pem"], "--cert is missing: the members"),
        (&[three, "--rdzv-conf=user=me,password=x"], "user in --rdzv-conf and --engine etcd"),
        (&[three, "--engine=mysql"], "give embedded or etcd"),
        (&[three, "--rdzv-backend=nope"], "--rdzv-backend \"nope\""),
    ] {
        let error = refusal(&with(options), &[]);
        assert!(error.contains(words), "{options:?}: {error}");
    }
    let error = refusal(&["--engine=etcd", "true"], &[]);
    assert!(error.starts_with("--rdzv-endpoint is missing: --engine etcd runs"), "{error}");
    let error = refusal(&["--engine=etcd", "--standalone", "true"], &[]);
    assert!(error.starts_with("--standalone and --engine etcd contradict"), "{error}");
    let secret = [("RALLYPOINT_SECRET", "sesame")];
    let warned = plan_on(&host(&secret), &with(&[three])).unwrap().warnings;
    assert!(warned[0].contains("an etcd that the job brings has no users"), "{warned:?}");
}

#[test]
fn the_member_has_the_certificates_of_the_node() {
    let files = ["--cacert=/ca.pem", "--cert=/c.pem", "--key=/k.pem"];
    let job = plan(&with(&[&files[..], &["--rdzv-endpoint=other,alias,10.0.0.3"]].concat()));
    let tls = job.etcd_member.unwrap().tls.unwrap();
    assert!(tls.identity.is_some());
}
