//! Generates the API from the repository's own .proto file, without protoc.

use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=PROTOS");
    let protos = match env::var_os("PROTOS") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../protos"),
    };
    let file = protos.join("deviceplugin_v1beta1.proto");
    println!("cargo:rerun-if-changed={}", file.display());
    tonic_prost_build::compile_fds(protox::compile([file], [protos])?)?;
    Ok(())
}
