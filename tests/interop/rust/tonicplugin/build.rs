//! Generates the API from the repository's own descriptor, without protoc.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=PROTOS");
    let protos = match env::var_os("PROTOS") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../protos"),
    };
    let path = protos.join("deviceplugin_v1beta1.binpb");
    println!("cargo:rerun-if-changed={}", path.display());
    let file = FileDescriptorProto::decode(&*fs::read(path)?)?;
    tonic_prost_build::compile_fds(FileDescriptorSet { file: vec![file] })?;
    Ok(())
}
