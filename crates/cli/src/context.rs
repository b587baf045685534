//! Address of the server and place of the resources that are meant. They are taken from flags, then
//! from the environment, then from a file that `weir config` keeps, then from what a server on this
//! machine starts with.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::error::Error;

/// The variables of the environment.
pub type Environment = HashMap<String, String>;

/// The settings, the variable of the environment that overrides each, and what holds without any.
pub const SETTINGS: &[(&str, &str, Option<&str>)] = &[
    ("server", "WEIR_SERVER", Some("http://127.0.0.1:8049")),
    ("project", "WEIR_PROJECT", Some("weir")),
    ("location", "WEIR_LOCATION", Some("local")),
    ("token-file", "WEIR_TOKEN_FILE", None),
    ("ca-cert", "WEIR_CA_CERT", None),
];

/// The settings of the user's file, and its path.
#[derive(Debug, Default)]
pub struct File {
    path: Option<PathBuf>,
    settings: BTreeMap<String, String>,
}

impl File {
    /// Reads `$WEIR_CONFIG`, or `weir/config.toml` in the user's configuration folder. No file is
    /// as good as an empty one.
    ///
    /// # Errors
    /// A file that cannot be read, is not TOML, or has settings that there are not.
    pub fn read(environment: &Environment) -> Result<Self, Error> {
        Self::parse(environment).map_err(Error::Other)
    }

    fn parse(environment: &Environment) -> Result<Self, String> {
        let mut file = Self {
            path: place(environment),
            settings: BTreeMap::new(),
        };
        let Some(path) = &file.path else {
            return Ok(file);
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(file),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let settings: BTreeMap<String, String> = toml::from_str(&text)
            .map_err(|error| format!("{}: {}", path.display(), error.message()))?;
        for name in settings.keys() {
            known(name).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        file.settings = settings;
        Ok(file)
    }

    /// Returns a setting of the file.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Sets or removes a setting, and writes the file.
    ///
    /// # Errors
    /// No such setting, or no place to write it.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), Error> {
        known(name)?;
        match value {
            Some(value) => self.settings.insert(name.to_owned(), value.to_owned()),
            None => self.settings.remove(name),
        };
        self.write().map_err(Error::Other)
    }

    fn write(&self) -> Result<(), String> {
        let path = self
            .path
            .as_ref()
            .ok_or("neither HOME nor WEIR_CONFIG is set")?;
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(cannot)?;
        }
        let text = toml::to_string(&self.settings).map_err(|error| error.to_string())?;
        let new = path.with_extension("toml.new");
        std::fs::write(&new, text).map_err(cannot)?;
        std::fs::rename(&new, path).map_err(cannot)
    }
}

/// Returns the path of the file of settings.
pub fn place(environment: &Environment) -> Option<PathBuf> {
    let get = |name: &str| environment.get(name).filter(|v| !v.is_empty());
    get("WEIR_CONFIG").map(PathBuf::from).or_else(|| {
        let folder = get("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = folder.or_else(|| Some(PathBuf::from(get("HOME")?).join(".config")));
        Some(folder?.join("weir").join("config.toml"))
    })
}

fn known(name: &str) -> Result<(), String> {
    if SETTINGS.iter().any(|(n, ..)| *n == name) {
        return Ok(());
    }
    let names: Vec<&str> = SETTINGS.iter().map(|(n, ..)| *n).collect();
    Err(format!(
        "there is no setting [{name}]; the settings are {}",
        names.join(", ")
    ))
}

/// Returns a setting: the flag, or the environment's, or the file's, or the default.
pub fn setting(
    name: &str,
    flag: Option<&str>,
    environment: &Environment,
    file: &File,
) -> Option<String> {
    let (_, variable, default) = SETTINGS.iter().find(|(n, ..)| *n == name)?;
    // An empty variable is as good as none.
    let variable = environment
        .get(*variable)
        .map(String::as_str)
        .filter(|v| !v.is_empty());
    flag.or(variable)
        .or_else(|| file.get(name))
        .or(*default)
        .map(str::to_owned)
}
