//! Who answers at the endpoint, and what it tells.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::Doctor;
use crate::launch::{Job, free_endpoint, host_of, until_listed, wait};
use crate::secure::Certificates;
use crate::support::{Embedded, Etcd, Version};

fn doctor(endpoint: &str, options: &[&str]) -> Doctor {
    let usual = ["--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "job"];
    Doctor::new(&[&usual[..], options].concat())
}

/// A program that answers every client with these bytes: at once, or when it is spoken to.
fn program(greets: bool, bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    // It ends with the test.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                if !greets {
                    let _ = stream.read(&mut [0; 64]);
                }
                let _ = stream.write_all(bytes);
                let _ = stream.read(&mut [0; 64]);
            });
        }
    });
    endpoint
}

#[test]
fn a_program_that_is_no_server_is_named() {
    for (greets, bytes, words) in [
        (
            true,
            &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
            "is no etcd, but an SSH server (SSH-2.0-OpenSSH_9.2)",
        ),
        (
            false,
            b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n",
            "is no etcd, but an HTTP server (nginx)",
        ),
    ] {
        let endpoint = program(greets, bytes);
        let found = doctor(&endpoint, &[]).finds().is("fail");
        found.says("server", "fail", words);
        found.says("server", "fail", "another port");
        assert!(found.of("peers").is_empty(), "there is no server to ask");
    }
}

#[test]
fn servers_are_known_by_their_answers() {
    let etcd = wait(Etcd::start(Version::V3_5));
    let found = doctor(&etcd.address(), &["--rdzv-backend", "etcd"]).finds().is("ok");
    found.says("server", "ok", "An etcd answers, version 3.5.");
    found.says("clock", "ok", "agree");
    found.says("peers", "ok", "No node of run \"job\" is there yet");
    found.says("dial_back", "skip", "Not tried: an etcd connects to no node");
    let server = wait(Embedded::memory());
    let found = doctor(&server.address(), &[]).finds().is("ok");
    found.says("server", "ok", "Rallypoint's server answers");
    found.says("dial_back", "ok", "The server reaches this node at 127.0.0.1:");
    found.says("clock", "ok", "agree");
    // Nothing listens at an etcd that should be there already.
    let found = doctor(&free_endpoint(), &["--rdzv-backend", "etcd"]).finds().is("fail");
    found.says("server", "fail", "Refused: nothing listens there");
}

#[test]
fn the_server_of_a_run_is_for_those_who_share_its_name_and_its_secret() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let nodes = [job.launcher().env("RALLYPOINT_SECRET", "sesame").start()];
    host_of(&nodes, &endpoint);
    let ask = |secret: &str, options: &[&str]| {
        doctor(&endpoint, options).env("RALLYPOINT_SECRET", secret).finds()
    };
    let found = ask("sesame", &[]).is("ok");
    found.says("server", "ok", "The server of run \"job\" answers");
    found.says("dial_back", "ok", "The server reaches this node at");
    ask("simsim", &[]).is("fail").says("server", "fail", "the shared secret does not match");
    ask("", &[]).is("fail").says("server", "fail", "requires a shared secret and none is set");
    let other = ask("sesame", &["--rdzv-id", "another"]).is("fail");
    other.says("server", "fail", "is that of run \"job\", and ends with it");
}

#[test]
fn a_server_that_speaks_tls_is_recognized() {
    let certificates = Certificates::new();
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let options = certificates.options();
    let nodes = [job.launch_with(&options)];
    host_of(&nodes, &endpoint);
    let found = doctor(&endpoint, &options).finds().is("ok");
    found.says("server", "ok", "The server of run \"job\" answers");
    found.says("clock", "skip", "Not checked");
    doctor(&endpoint, &[]).finds().is("fail").says("server", "fail", "speaks TLS");
    let other = certificates.other_ca();
    let wrong = [&options[..], &["--cacert", &other]].concat();
    doctor(&endpoint, &wrong).finds().is("fail").says(
        "server",
        "fail",
        "not signed by the given CA",
    );
}

/// nvidia-resiliency-ext#142: the same rank on two nodes.
#[test]
fn two_nodes_with_the_same_rank_are_named() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "3");
    let _nodes = [job.launch_with(&["--node-rank", "0"]), job.launch_with(&["--node-rank", "0"])];
    until_listed(&endpoint, "job", 2);
    let found = doctor(&endpoint, &["--nnodes", "3"]).finds().is("fail");
    let [(_, words)] = &found.of("peers")[..] else { panic!("{:#}", found.report) };
    assert!(words.contains("say --node-rank 0") && words.contains(" and "), "{words}");
    let found = doctor(&endpoint, &["--nnodes", "3", "--node-rank", "0"]).finds();
    found.says("peers", "fail", "this node and node ");
}
