//! Facts about Active Directory domains ([`weir_auth::domains`]) in a file of the data folder.

use std::path::Path;
use std::sync::Arc;
use weir_base::small_file;

use anyhow::{Context, Result};
use weir_auth::domains::Domains;

/// The file in the data folder.
pub const FILE: &str = "smb-domains";

/// Opens the domains of a data folder. New facts are written to its file [`FILE`].
pub fn open(folder: &Path) -> Result<Arc<Domains>> {
    let path = folder.join(FILE);
    let bytes = small_file::read(&path).with_context(|| path.display().to_string())?;
    let text = String::from_utf8(bytes.unwrap_or_default()).ok();
    let folder = folder.to_owned();
    let keep = move |text: &str| small_file::replace(&folder, FILE, text.as_bytes());
    let domains = text.and_then(|text| Domains::open(&text, keep));
    let domains = domains.with_context(|| format!("{} is damaged", path.display()))?;
    Ok(Arc::new(domains))
}
