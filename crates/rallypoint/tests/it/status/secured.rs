//! Servers that ask for more than an address.

use super::{Server, said};
use crate::launch::{Job, free_endpoint, host_of};
use crate::secure::Certificates;

#[test]
fn a_secret_and_certificates_are_given_as_to_the_launcher() {
    let certificates = Certificates::new();
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let line = job.launcher().with(&certificates.options());
    let nodes = [line.env("RALLYPOINT_SECRET", "sesame").start()];
    host_of(&nodes, &endpoint);
    let server = Server { address: endpoint, _ours: None, _etcd: None };
    let Certificates { ca, cert, key, .. } = &certificates;
    let conf = format!("protocol=https,cacert={ca},cert={cert},key={key}");
    let words = ["status", "--rdzv-conf", &conf, "job"];
    let ok = crate::launch::until("a node", || {
        let ok = said(&server.command(&words, &[("RALLYPOINT_SECRET", "sesame")]));
        Some(ok).filter(|ok| ok.stdout.contains("waits for 1 more node"))
    });
    assert_eq!(ok.code, Some(0), "{ok:?}");
    for secret in ["simsim", ""] {
        let refused = said(&server.command(&words, &[("RALLYPOINT_SECRET", secret)]));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(!refused.stderr.contains("sesame"), "{refused:?}");
    }
}
