//! The bucket for backups: `--backup-bucket` and what goes with it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use url::Url;
use weir_backup::{Bucket, Folder, RetryBucket, S3, S3Settings};

use crate::cli::Backups;

/// Region of signatures where none is given.
const REGION: &str = "us-east-1";

/// Opens the bucket of `args`. `None` without one. Nothing is asked of a server yet.
///
/// # Errors
/// An address that is none, a folder or files that cannot be read.
pub fn open(args: &Backups) -> Result<Option<Arc<dyn Bucket>>> {
    let Some(bucket) = &args.backup_bucket else {
        return Ok(None);
    };
    let opened: Arc<dyn Bucket> = match bucket.split_once("://") {
        Some(("s3", _)) => {
            let settings = settings(bucket, args)?;
            Arc::new(RetryBucket::new(S3::new(settings)?, std::thread::sleep))
        }
        Some((scheme, _)) => bail!("--backup-bucket {bucket}: {scheme} is neither s3 nor a folder"),
        None => {
            let folder = Folder::new(Path::new(bucket)).context("--backup-bucket")?;
            Arc::new(RetryBucket::new(folder, std::thread::sleep))
        }
    };
    Ok(Some(opened))
}

fn settings(bucket: &str, args: &Backups) -> Result<S3Settings> {
    let url = Url::parse(bucket).with_context(|| format!("--backup-bucket {bucket}"))?;
    let name = url.host_str().unwrap_or_default();
    ensure!(
        !name.is_empty() && matches!(url.path(), "" | "/"),
        "--backup-bucket {bucket}: write s3://BUCKET, with ?endpoint=URL and &region=NAME as needed"
    );
    let (mut endpoint, mut region) = (None, REGION.to_owned());
    for (option, value) in url.query_pairs() {
        match &*option {
            "endpoint" => endpoint = Some(value.into_owned()),
            "region" => region = value.into_owned(),
            _ => bail!("--backup-bucket {bucket}: {option} is neither endpoint nor region"),
        }
    }
    // Amazon's own server has a name for each bucket; others are asked by path.
    let path_style = endpoint.is_some();
    let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
    let endpoint = Url::parse(&endpoint).with_context(|| format!("--backup-bucket: {endpoint}"))?;
    let Some(file) = &args.backup_credentials else {
        bail!(
            "--backup-bucket {bucket} needs --backup-credentials FILE, with ACCESS_KEY:SECRET_KEY in it"
        );
    };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("--backup-credentials {}", file.display()))?;
    let Some((access_key, secret_key)) = text.trim().split_once(':') else {
        bail!(
            "--backup-credentials {}: not of the form ACCESS_KEY:SECRET_KEY",
            file.display()
        );
    };
    Ok(S3Settings {
        endpoint,
        bucket: name.to_owned(),
        region,
        path_style,
        access_key: access_key.to_owned(),
        secret_key: secret_key.to_owned(),
        ca: certificates(args.backup_ca.as_deref())?,
    })
}

fn certificates(file: Option<&Path>) -> Result<Vec<Vec<u8>>> {
    let Some(file) = file else {
        return Ok(Vec::new());
    };
    let named = || format!("--backup-ca {}", file.display());
    let read = CertificateDer::pem_file_iter(file).with_context(named)?;
    let der: Result<Vec<Vec<u8>>, _> = read.map(|c| c.map(|c| c.as_ref().to_vec())).collect();
    let der = der.with_context(named)?;
    ensure!(!der.is_empty(), "{}: no certificate in it", named());
    Ok(der)
}
