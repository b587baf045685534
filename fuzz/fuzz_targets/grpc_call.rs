#![no_main]

// The first byte chooses the method; the rest is the body of the call.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((method, body)) = data.split_first() else {
        return;
    };
    let methods = [
        "/google.cloud.netapp.v1.NetApp/CreateVolume",
        "/google.cloud.netapp.v1.NetApp/UpdateVolume",
        "/google.cloud.netapp.v1.NetApp/ListVolumes",
        "/google.cloud.netapp.v1.NetApp/RevertVolume",
        "/google.cloud.netapp.v1.NetApp/ExecuteOntapPost",
        "/google.cloud.filestore.v1.CloudFilestoreManager/UpdateInstance",
        "/google.longrunning.Operations/WaitOperation",
    ];
    let path = methods[usize::from(*method) % methods.len()];
    drop(weir_api::grpc::decode(path, body));
});
