//! What users write: `--rdzv-conf`, endpoints and rendezvous URLs. Every text is read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rallypoint::config::{
    ConfigError, DynamicOptions, Endpoint, EtcdOptions, RendezvousParameters, parse_config,
};

fn read(parameters: Result<RendezvousParameters, ConfigError>) {
    let Ok(parameters) = parameters else { return };
    // It names a file of this machine, which is read.
    if parameters.get("password_file").is_none() {
        let _ = EtcdOptions::from_parameters(&parameters);
        let _ = DynamicOptions::from_parameters(&parameters);
    }
}

fuzz_target!(|text: &str| {
    let _ = Endpoint::parse_list(text);
    read(RendezvousParameters::from_url(text));
    read(parse_config(text).and_then(|config| {
        let parameters = RendezvousParameters::new("etcd", "localhost:2379", "run", 1, 2)?;
        Ok(config
            .into_iter()
            .fold(parameters, |parameters, (key, value)| parameters.with(key, value)))
    }));
});
