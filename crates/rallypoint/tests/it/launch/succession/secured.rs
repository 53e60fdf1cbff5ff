//! A successor lets in whom the head has let in, and nobody else.

use super::Ground;
use crate::launch::Launcher;
use crate::secure::Authority;

#[test]
fn who_has_the_secret_is_let_in_by_the_successor() {
    let ground = Ground::with_long_leases("2:3", 3);
    let [right, wrong] = ["sesame", "simsim"].map(|secret| {
        let file = ground.job.file(secret);
        std::fs::write(&file, secret).unwrap();
        file
    });
    let (mut nodes, first) = ground.starts_with(&["--secret-file", &right], &[]);
    let second = ground.regroups(ground.kill(0), &first, &[1, 2]);
    let said = ground.start_with(2, &["--secret-file", &wrong], "").ends_with(1).stderr;
    assert!(said.contains("secret"), "{said}");
    ground.ends(&mut nodes[1..], &second);
}

/// Each host has a certificate for its own name.
#[test]
fn the_successor_shows_its_own_certificate() {
    let ground = Ground::with_long_leases("2:3", 3);
    let authority = Authority::new();
    let ca = ground.job.path().join("ca.crt");
    std::fs::write(&ca, authority.pem()).unwrap();
    let start = |host: usize| {
        let directory = ground.job.path().join(format!("tls{host}"));
        std::fs::create_dir(&directory).unwrap();
        let (cert, key) = authority.sign(&directory, &format!("node{host}"));
        let [ca, cert, key] = [&ca, &cert, &key].map(|path| path.to_str().unwrap());
        ground.start_with(host, &["--cacert", ca, "--cert", cert, "--key", key], "")
    };
    let mut nodes: Vec<Launcher> = (0..3).map(start).collect();
    let first = ground.job.group(3);
    let second = ground.regroups(ground.kill(0), &first, &[1, 2]);
    ground.is_served_by(1, &nodes[2..]);
    ground.ends(&mut nodes[1..], &second);
}
