//! Turns our `.proto` files into Rust with `protox`, so that nobody needs `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(
        [
            "proto/etcd.proto",
            "proto/lock.proto",
            "proto/election.proto",
            "proto/log.proto",
            "proto/succession.proto",
            "proto/doctor.proto",
        ],
        ["proto"],
    )?;
    // `Bytes` everywhere: keys and values are slices of the received buffer until someone keeps them.
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::SmallCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
