//! Session of a command: streams, settings, the server, and the steps that all commands have in
//! common: listing, describing, changing, waiting, asking.

use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::Environment;
use crate::args::{Async, At, Common, LabelChanges, Listing};
use crate::context::{File, setting};
use crate::error::Error;
use crate::filter::Filter;
use crate::format::{self, Format, Kind, Scanner};
use crate::http::{Client, Method};

/// Time for which an operation is waited for without a word, where there is no terminal.
const SILENT: Duration = Duration::from_secs(2);

/// The streams of a command.
pub struct Io<'a> {
    /// Stream for what was asked for
    pub out: &'a mut dyn Write,
    /// Stream for what is to be said besides
    pub err: &'a mut dyn Write,
    /// True if progress is to be shown there
    pub progress: bool,
    /// Reads the reply to a question; none where there is no user to ask
    pub answer: Option<&'a mut dyn FnMut() -> Option<String>>,
    /// Reads the password of the user that it is given: asked for without echo, or the next line of
    /// the standard input
    pub secret: &'a mut dyn FnMut(&str) -> Result<String, String>,
    /// Sets the line that an interrupt (Ctrl-C) prints from now on; it ends the program
    pub interrupted: &'a mut dyn FnMut(&str),
}

/// The means of a command: its streams, its settings, the server.
pub struct Session<'s, 'io> {
    io: &'s mut Io<'io>,
    client: Client,
    project: String,
    location: String,
    format: Option<String>,
    quiet: bool,
}

/// A change of a resource.
pub struct Change<'a> {
    /// The method of the request
    pub method: Method,
    /// Name of the resource, or of the collection that it is to be made in
    pub name: String,
    /// Parameters of the request's query
    pub query: Vec<(&'static str, String)>,
    /// The body, if the request has one
    pub body: Option<Value>,
    /// Mode: waited for, not waited for, or only checked
    pub wait: Async,
    /// Message when it is done, such as `Created volume [v1].`
    pub done: String,
    /// Format in which it is printed when it is done if the user says nothing
    pub format: &'a Format,
}

impl<'s, 'io> Session<'s, 'io> {
    /// Settles settings and prepares to talk to the server.
    ///
    /// # Errors
    /// Settings that cannot be read or are none.
    pub fn open(
        common: &Common,
        at: &At,
        environment: &Environment,
        io: &'s mut Io<'io>,
    ) -> Result<Self, Error> {
        let file = File::read(environment)?;
        let get =
            |name: &str, flag: &Option<String>| setting(name, flag.as_deref(), environment, &file);
        let server = get("server", &common.server).unwrap_or_default();
        let given = environment
            .get("WEIR_TOKEN")
            .filter(|t| !t.is_empty())
            .cloned();
        let token = match (&common.access_token_file, given) {
            (None, Some(token)) => Some(token),
            (flag, _) => match get("token-file", flag) {
                Some(path) => {
                    let text = std::fs::read_to_string(&path)
                        .map_err(|error| Error::Other(format!("cannot read {path}: {error}")))?;
                    Some(text.trim().to_owned())
                }
                None => None,
            },
        };
        let client = Client::new(&server, token, get("ca-cert", &common.ca_cert).as_deref())?;
        Ok(Self {
            io,
            client,
            project: get("project", &common.project).unwrap_or_default(),
            location: get("location", &at.location).unwrap_or_default(),
            format: common.format().map(str::to_owned),
            quiet: common.quiet,
        })
    }

    /// Returns the client, for requests beside the command's own.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the body of a path that is not a resource.
    ///
    /// # Errors
    /// See [`Client::text`], which makes the request.
    pub fn text(&self, path: &str) -> Result<String, Error> {
        self.client.text(path)
    }

    /// Returns the full name of a resource in the location.
    ///
    /// # Errors
    /// A full name of something else.
    pub fn name(&self, collection: &str, name: &str) -> Result<String, Error> {
        if name.starts_with("projects/") {
            let parts: Vec<&str> = name.split('/').collect();
            return match parts.as_slice() {
                [_, _, "locations", _, rest @ ..] if full(collection, rest) => Ok(name.to_owned()),
                _ => Err(Error::Usage(format!("[{name}] is not one of {collection}"))),
            };
        }
        if name.is_empty() || name.contains('/') {
            return Err(Error::Usage(format!("[{name}] is not a name")));
        }
        Ok(format!("{}/{collection}/{name}", self.parent()))
    }

    /// Returns the location's full name.
    pub fn parent(&self) -> String {
        format!("projects/{}/locations/{}", self.project, self.location)
    }

    /// Returns the full name of the location to list in: all, if none is given.
    pub fn listed(&self, at: &At) -> String {
        let location = at.location.as_deref().unwrap_or("-");
        format!("projects/{}/locations/{location}", self.project)
    }

    /// Returns the project's id.
    pub fn project_id(&self) -> &str {
        &self.project
    }

    /// Returns the project's full name.
    pub fn project(&self) -> String {
        format!("projects/{}", self.project)
    }

    /// Returns the user's format, or the command's.
    fn format(&self, default: &Format) -> Result<Format, Error> {
        match &self.format {
            Some(text) => Ok(format::parse(text)?.with_default(Some(default))),
            None => Ok(default.clone()),
        }
    }

    /// Writes a line to the stream beside the output.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn say(&mut self, text: &str) -> Result<(), Error> {
        Ok(self.io.err.write_all(format!("{text}\n").as_bytes())?)
    }

    /// Writes a warning to the stream beside the output, if there is one.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn warn(&mut self, warning: Option<&str>) -> Result<(), Error> {
        match warning {
            Some(warning) => self.say(&format!("WARNING: {warning}")),
            None => Ok(()),
        }
    }

    /// Returns the password of a user.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn secret(&mut self, user: &str) -> Result<String, Error> {
        (self.io.secret)(user).map_err(Error::Other)
    }

    /// Writes text to the output, as it is.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn put(&mut self, text: &str) -> Result<(), Error> {
        Ok(self.io.out.write_all(text.as_bytes())?)
    }

    /// Prints a value as JSON.
    ///
    /// # Errors
    /// As [`Session::put`].
    pub fn put_json(&mut self, value: &Value) -> Result<(), Error> {
        self.put(&format!("{value:#}\n"))
    }

    /// Reads a resource by its full name.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub fn get(&self, name: &str) -> Result<Value, Error> {
        self.client.call(Method::Get, name, &[], None)
    }

    /// Makes a request whose response is not an operation.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub fn call(
        &self,
        method: Method,
        name: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        self.client.call(method, name, query, body)
    }

    /// Makes a request of ONTAP's interface.
    ///
    /// # Errors
    /// The server's, or that it cannot be reached.
    pub fn ontap(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let (status, answer) = self.client.ontap(method, path, query, body)?;
        match answer.get("error") {
            Some(error) => Err(Error::from_ontap(error, status)),
            None => Ok(answer),
        }
    }

    /// Runs a line of ONTAP's command language and returns what it prints; `Err` if it was refused.
    ///
    /// # Errors
    /// The server's, other than a refusal of the line.
    pub fn line(&self, line: &str) -> Result<Result<String, String>, Error> {
        let body = json!({"input": line});
        let answer = self
            .client
            .ontap(Method::Post, "private/cli", &[], Some(&body))?;
        let (status, answer) = answer;
        let output = answer.get("output").and_then(Value::as_str);
        match (output, answer.get("error")) {
            (Some(output), None) => Ok(Ok(output.to_owned())),
            (Some(output), Some(_)) => Ok(Err(output.to_owned())),
            (None, Some(error)) => Err(Error::from_ontap(error, status)),
            (None, None) => Err(Error::Unreachable("the answer has no output".to_owned())),
        }
    }

    /// Prints resources that are there already.
    ///
    /// # Errors
    /// A format that is none.
    pub fn print_all(&mut self, resources: &[Value], default: &Format) -> Result<(), Error> {
        let format = self.format(default)?;
        if resources.is_empty() && format.kind == Kind::Table {
            return self.say("Listed 0 items.");
        }
        let text = format.list(resources, false)?;
        self.put(&text)
    }

    /// Sets the line that an interrupt prints from now on; it ends the program.
    pub fn explain_interrupt(&mut self, line: &str) {
        (self.io.interrupted)(line);
    }

    /// Returns true if progress may be shown.
    pub fn shows_progress(&self) -> bool {
        self.io.progress
    }

    /// Prints one resource, in the user's format or `default`.
    ///
    /// # Errors
    /// The user's format is none; the output cannot be written.
    pub fn print(&mut self, resource: &Value, default: &Format) -> Result<(), Error> {
        let format = self.format(default)?;
        let text = format.one(resource)?;
        self.put(&text)
    }

    /// Reads one resource and prints it, as YAML by default.
    ///
    /// # Errors
    /// The server's; a format that is none.
    pub fn describe(&mut self, name: &str) -> Result<(), Error> {
        let format = self.format(&Format::plain(Kind::Yaml))?;
        let resource = self.get(name)?;
        self.put(&format.one(&resource)?)
    }

    /// Lists a collection: page by page, sorted, filtered, cut, as gcloud does, here.
    ///
    /// # Errors
    /// The server's; a format or a filter that is none.
    pub fn list(
        &mut self,
        parent: &str,
        collection: &str,
        listing: &Listing,
        default: &Format,
    ) -> Result<(), Error> {
        let format = self.format(default)?;
        let filter = listing.filter.as_deref().map(Filter::parse).transpose()?;
        let by = listing.sort_by.iter().map(|field| {
            let (reverse, field) = match field.strip_prefix('~') {
                Some(field) => (true, field),
                None => (false, field.as_str()),
            };
            Scanner::new(field).key().map(|key| (reverse, key))
        });
        let by: Vec<_> = by.collect::<Result<_, _>>()?;
        let all = filter.is_some() || !by.is_empty();
        let limit = listing
            .limit
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(usize::MAX);
        let most = if all { usize::MAX } else { limit };
        let mut found = self.fetch(parent, collection, listing.page_size, most)?;

        for (reverse, key) in by.iter().rev() {
            found.sort_by(|a, b| {
                let order = format::compare(&key.get(a), &key.get(b));
                if *reverse { order.reverse() } else { order }
            });
        }
        if let Some(filter) = &filter {
            found.retain(|resource| filter.matches(resource));
            let unknown = filter.unknown_keys();
            if found.is_empty() && !unknown.is_empty() {
                self.say(&format!(
                    "WARNING: The following filter keys were not present in any resource : {}",
                    unknown.join(", ")
                ))?;
            }
        }
        found.truncate(limit);

        if found.is_empty() && (format.kind == Kind::Table || listing.uri) {
            return self.say("Listed 0 items.");
        }
        if listing.uri {
            let names = found
                .iter()
                .filter_map(|r| r.get("name").and_then(Value::as_str));
            let uris: Vec<String> = names.map(|name| self.client.uri(name) + "\n").collect();
            return self.put(&uris.concat());
        }
        let text = format.list(&found, !by.is_empty())?;
        self.put(&text)
    }

    /// Fetches the first `most` or more resources of a collection, page by page.
    fn fetch(
        &mut self,
        parent: &str,
        collection: &str,
        page_size: Option<u32>,
        most: usize,
    ) -> Result<Vec<Value>, Error> {
        let path = match parent {
            "" => collection.to_owned(),
            parent => format!("{parent}/{collection}"),
        };
        let mut found: Vec<Value> = Vec::new();
        let mut token = String::new();
        loop {
            let mut query = Vec::new();
            if let Some(size) = page_size {
                query.push(("pageSize", size.to_string()));
            }
            if !token.is_empty() {
                query.push(("pageToken", token.clone()));
            }
            let mut page = self.client.call(Method::Get, &path, &query, None)?;
            if let Some(Value::Array(items)) = page.get_mut(collection) {
                found.append(items);
            }
            for place in page
                .get("unreachable")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.say(&format!("WARNING: unreachable: {}", format::text(place)))?;
            }
            let next = page
                .get("nextPageToken")
                .and_then(Value::as_str)
                .unwrap_or("");
            if next.is_empty() || next == token || found.len() >= most {
                return Ok(found);
            }
            token = next.to_owned();
        }
    }

    /// Makes a change and waits for it, or only checks it, as `change.wait` says.
    ///
    /// # Errors
    /// The server's, or the operation's.
    pub fn change(&mut self, mut change: Change<'_>) -> Result<(), Error> {
        if change.wait.validate_only {
            change.query.push(("validateOnly", "true".to_owned()));
            return self.validate(&change);
        }
        let format = self.format(change.format)?;
        let operation = self.client.call(
            change.method,
            &change.name,
            &change.query,
            change.body.as_ref(),
        )?;
        if change.wait.no_wait {
            let name = operation.get("name").map(format::text).unwrap_or_default();
            self.say(&format!(
                "Check the status of the operation:\n  $ weir operations describe {name}"
            ))?;
            let asked = self.format.is_some();
            return match asked {
                true => self.put(&format.one(&operation)?),
                false => Ok(()),
            };
        }
        let response = self.finish(operation)?;
        self.say(&change.done)?;
        self.put(&format.one(&response)?)
    }

    /// Asks the server to check a change, and prints the result that it would have.
    ///
    /// # Errors
    /// The server's.
    pub fn validate_only(
        &mut self,
        method: Method,
        name: &str,
        mut query: Vec<(&'static str, String)>,
        body: Option<Value>,
    ) -> Result<(), Error> {
        query.push(("validateOnly", "true".to_owned()));
        self.validate(&Change {
            method,
            name: name.to_owned(),
            query,
            body,
            wait: Async::default(),
            done: String::new(),
            format: &Format::plain(Kind::None),
        })
    }

    /// Prints what the server says that a change would come to.
    fn validate(&mut self, change: &Change<'_>) -> Result<(), Error> {
        let format = self.format(&Format::plain(Kind::Yaml))?;
        let body = change.body.as_ref();
        let mut answer = self
            .client
            .call(change.method, &change.name, &change.query, body)?;
        self.say("The server would accept this change. Nothing was changed.")?;
        let mut shown = Map::new();
        for part in ["response", "preview"] {
            let part_value = answer.get_mut(part).map(Value::take);
            if let Some(value) = part_value.filter(|v| v.as_object().is_some_and(|o| !o.is_empty()))
            {
                shown.insert(part.to_owned(), value);
            }
        }
        match shown.is_empty() {
            true => Ok(()),
            false => self.put(&format.one(&Value::Object(shown))?),
        }
    }

    /// Waits for an operation and returns its response.
    ///
    /// # Errors
    /// The server's, or the operation's.
    pub fn finish(&mut self, operation: Value) -> Result<Value, Error> {
        let name = operation.get("name").map(format::text).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or("").to_owned();
        let mut bar: Option<ProgressBar> = None;
        let progress = self.io.progress;
        let full = operation.get("name").map(format::text).unwrap_or_default();
        (self.io.interrupted)(&format!(
            "the operation goes on in the server: weir operations describe {full}"
        ));
        let err = &mut *self.io.err;
        let mut said = false;
        let done = self.client.wait(operation, |waited| {
            if !progress && !said && waited >= SILENT {
                said = true;
                // The operation counts, not the line.
                let _ = writeln!(err, "Waiting for [{name}] to finish...");
            }
            if progress && bar.is_none() {
                let spinner = ProgressBar::new_spinner();
                if let Ok(style) = ProgressStyle::with_template("{msg}{spinner}{elapsed:>5}") {
                    spinner.set_style(style);
                }
                spinner.set_message(format!("Waiting for [{name}] to finish... "));
                spinner.enable_steady_tick(Duration::from_millis(100));
                bar = Some(spinner);
            }
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let mut done = done?;
        for field in ["statusMessage", "statusDetail"] {
            let words = done.get("metadata").and_then(|m| m.get(field));
            for line in words.and_then(Value::as_str).unwrap_or_default().lines() {
                let line = line.strip_prefix("Warning: ").unwrap_or(line).to_owned();
                self.warn(Some(&line))?;
            }
        }
        if let Some(error) = done.get("error").filter(|e| !e.is_null()) {
            return Err(Error::from_body(error, None));
        }
        Ok(done
            .get_mut("response")
            .map(Value::take)
            .unwrap_or_else(|| json!({})))
    }

    /// Asks the user to agree to a change, unless it is only checked.
    ///
    /// # Errors
    /// That the user does not agree.
    pub fn confirm_change(&mut self, wait: Async, warning: &str) -> Result<(), Error> {
        match wait.validate_only {
            true => Ok(()),
            false => self.confirm(warning),
        }
    }

    /// Checks that the user agrees, or cannot or need not be asked.
    ///
    /// # Errors
    /// That the user does not agree.
    pub fn confirm(&mut self, warning: &str) -> Result<(), Error> {
        if self.quiet {
            return Ok(());
        }
        let Some(answer) = self.io.answer.as_mut() else {
            return Ok(());
        };
        let question = format!("{warning}\nAre you sure?\n\nDo you want to continue (Y/n)?  ");
        self.io.err.write_all(question.as_bytes())?;
        self.io.err.flush()?;
        let line = answer().unwrap_or_else(|| "n".to_owned());
        match line.trim().to_ascii_lowercase().as_str() {
            "" | "y" | "yes" => Ok(()),
            _ => Err(Error::Other("Aborted by user.".to_owned())),
        }
    }

    /// Returns a line that the user types, or that is piped in.
    ///
    /// # Errors
    /// The streams cannot be written or read.
    pub fn prompt_line(&mut self, question: &str) -> Result<String, Error> {
        let mut line = String::new();
        match self.io.answer.as_mut() {
            Some(answer) => {
                self.io.err.write_all(question.as_bytes())?;
                self.io.err.flush()?;
                line = answer().unwrap_or_default();
            }
            None => {
                std::io::stdin().read_line(&mut line)?;
            }
        }
        Ok(line)
    }

    /// Returns the labels of a resource after changes; none where there are no changes.
    pub fn labels(resource: &Value, changes: &LabelChanges) -> Option<Value> {
        let none = changes.update_labels.is_none()
            && changes.remove_labels.is_none()
            && !changes.clear_labels;
        if none {
            return None;
        }
        let mut labels = match resource.get("labels") {
            Some(Value::Object(map)) if !changes.clear_labels => map.clone(),
            _ => Map::new(),
        };
        for (key, value) in changes.update_labels.iter().flatten() {
            labels.insert(key.clone(), Value::from(value.as_str()));
        }
        for key in changes.remove_labels.iter().flat_map(|list| &list.0) {
            labels.remove(key);
        }
        Some(Value::Object(labels))
    }
}

/// Returns true if the parts of a full name behind its location are of a collection, which may
/// itself be below a resource (`volumes/v1/snapshots`).
fn full(collection: &str, parts: &[&str]) -> bool {
    let Some((last, names)) = parts.split_last() else {
        return false;
    };
    let own = collection.rsplit('/').next().unwrap_or(collection);
    !last.is_empty() && names.last() == Some(&own) && parts.len() % 2 == 0
}
