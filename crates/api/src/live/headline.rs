//! `GET /v1/headline`: the answer of a page of the console, in a sentence.

use super::book::SeriesRow;
use super::{Kind, Live, invalid};
use crate::error::{ApiError, ApiResult};
use crate::json::abbreviate;
use crate::query::Query;
use crate::words::{Language, Words};
use serde_json::{Value, json};
use weir_control::{Actor, Collection, Control, QosType, Role, Stamp, Surface, View};
use weir_relations::model::Relationship;
use weir_relations::schedule::Schedule;

/// Pages that have a sentence.
const PAGES: &[&str] = &[
    "overview",
    "pools",
    "volumes",
    "clients",
    "snapshots",
    "replication",
    "audit",
    "access",
];

/// Part of a second from which on a limit counts as holding a volume.
const HELD: f64 = 0.5;

/// A request for a sentence, and the sources that it is made of.
pub(crate) struct HeadlineRequest<'a> {
    pub(crate) live: &'a Live,
    pub(crate) control: &'a Control,
    pub(crate) actor: &'a Actor,
    pub(crate) query: &'a Query,
    pub(crate) language: Language,
    /// Relationships that have a volume of this node as their destination.
    pub(crate) relationships: Vec<Relationship>,
}

/// Returns the response of `GET /v1/headline`.
///
/// # Errors
/// INVALID_ARGUMENT naming the parameter; NOT_FOUND: there is no such volume.
pub(crate) async fn headline(asked: &HeadlineRequest<'_>) -> ApiResult<Value> {
    let page = asked.query.get("page").unwrap_or_default();
    let view = asked.control.view();
    let words = match page {
        "overview" => overview(asked.live, &view),
        "pools" => pools(&view),
        "volumes" => volumes(asked.live, &view),
        "clients" => clients(&asked.live.rows()),
        "snapshots" => snapshots(asked, &view)?,
        "replication" => replication(asked, &view),
        "audit" => audit(asked).await?,
        "access" => access(asked).await?,
        _ => {
            let shown = abbreviate(page);
            let all = PAGES.join(", ");
            return Err(invalid(
                "page",
                format_args!("\"{shown}\" is none of {all}"),
            ));
        }
    };
    Ok(json!({"page": page, "headline": words.text(asked.language)}))
}

fn short(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, last)| last)
}

/// Returns MiB/s as people write them: whole from ten on.
fn mibps(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part.clamp(0.0, 1.0) * 100.0)
}

/// Returns an age in words, such as `5 min`.
fn age(seconds: i64, language: Language) -> String {
    let (number, english, japanese) = match seconds.max(0) {
        s @ 0..120 => (s, "s", "秒"),
        s @ 120..7200 => (s / 60, "min", "分"),
        s @ 7200..172_800 => (s / 3600, "h", "時間"),
        s => (s / 86_400, "days", "日"),
    };
    match language {
        Language::English => format!("{number} {english}"),
        Language::Japanese => format!("{number} {japanese}"),
    }
}

/// Writes a sentence with an age in it, in each language.
fn aged(
    seconds: i64,
    english: impl Fn(&str) -> String,
    japanese: impl Fn(&str) -> String,
) -> Words {
    Words::new(
        english(&age(seconds, Language::English)),
        japanese(&age(seconds, Language::Japanese)),
    )
}

/// Names the pool with the most throughput left.
fn pools(view: &View) -> Words {
    let mut roomiest: Option<(f64, String)> = None;
    let (mut any, mut given) = (false, false);
    for pool in view.every_pool() {
        any = true;
        let figures = view.pool_figures(pool);
        let shared = &*pool.service_level == "FLEX" && pool.qos_type != QosType::Manual;
        let (Some(total), Some(free)) = (
            figures.total_throughput_mibps,
            figures.available_throughput_mibps,
        ) else {
            continue;
        };
        if shared || total <= 0.0 {
            continue;
        }
        given = true;
        if free >= 1.0 && roomiest.as_ref().is_none_or(|(most, _)| *most < free) {
            let full = pool.name.full(Collection::Pools);
            roomiest = Some((free, short(&full).to_owned()));
        }
    }
    match (any, roomiest, given) {
        (false, ..) => Words::new(
            "There is no storage pool yet.",
            "ストレージ プールはまだありません。",
        ),
        (_, Some((free, name)), _) => {
            let free = mibps(free);
            Words::new(
                format!("{name} has {free} MiB/s unallocated."),
                format!("{name} には未割り当てが {free} MiB/s あります。"),
            )
        }
        (_, None, true) => Words::new(
            "All throughput of every pool is allocated.",
            "すべてのプールのスループットが割り当て済みです。",
        ),
        (_, None, false) => Words::new(
            "Every pool is shared as it comes.",
            "どのプールも共有です。",
        ),
    }
}

/// Sums the conditions up. Limits that hold volumes are conditions after ten seconds, and count
/// here from the first.
fn overview(live: &Live, view: &View) -> Words {
    let report = live.conditions.report();
    let held = holding(live);
    if report.waiting > 0 || held == 0 {
        return report.headline.clone();
    }
    let n = every(view);
    let wait = if held == 1 { "waits" } else { "wait" };
    Words::new(
        format!("{held} of {n} volumes {wait} for a limit."),
        format!("{n} 個中 {held} 個のボリュームが上限を待っています。"),
    )
}

/// Counts the volumes that a limit held for at least half of the last second; less are bursts that
/// meet its edge.
fn holding(live: &Live) -> usize {
    let held = live.book.held();
    held.iter().filter(|held| held.row.bound >= HELD).count()
}

fn every(view: &View) -> usize {
    let all = [Surface::Netapp, Surface::Filestore].into_iter();
    all.map(|surface| view.every_volume(surface).count()).sum()
}

/// Counts the volumes that limits held in the last second.
fn volumes(live: &Live, view: &View) -> Words {
    counted(every(view), holding(live))
}

fn counted(n: usize, held: usize) -> Words {
    let (volumes, wait) = (
        if n == 1 { "volume" } else { "volumes" },
        if held == 1 { "waits" } else { "wait" },
    );
    match held {
        0 => Words::new(
            format!("{n} {volumes}, none waits."),
            format!("{n} 個のボリューム、待ちなし。"),
        ),
        _ => Words::new(
            format!("{held} of {n} {volumes} {wait}."),
            format!("{n} 個中 {held} 個のボリュームが待っています。"),
        ),
    }
}

/// Names the client that takes most of a volume, else of all.
fn clients(rows: &[SeriesRow]) -> Words {
    let bytes = |row: &SeriesRow| row.row.read_bytes + row.row.write_bytes;
    let most = |kind: Kind| {
        let of_kind = rows
            .iter()
            .filter(|row| row.kind == kind && bytes(row) > 0.0);
        of_kind.max_by(|a, b| bytes(a).total_cmp(&bytes(b)))
    };
    let Some(busiest) = most(Kind::Client) else {
        return Words::new(
            "No client moves data now.",
            "現在データを転送するクライアントはありません。",
        );
    };
    if let Some(pair) = most(Kind::VolumeClient)
        && let Some((volume, client)) = pair.name.split_once(' ')
    {
        let of_volume = |row: &&SeriesRow| row.kind == Kind::Volume && *row.name == *volume;
        if let Some(all) = rows
            .iter()
            .find(of_volume)
            .map(bytes)
            .filter(|all| *all > 0.0)
        {
            let (part, volume) = (percent(bytes(pair) / all), short(volume));
            return Words::new(
                format!("{client} takes {part} of {volume}."),
                format!("{client} が {volume} の {part} を使っています。"),
            );
        }
    }
    let all: f64 = rows
        .iter()
        .filter(|row| row.kind == Kind::Client)
        .map(bytes)
        .sum();
    let (name, part) = (&busiest.name, percent(bytes(busiest) / all));
    Words::new(
        format!("{name} takes {part} of all throughput."),
        format!("{name} が全体の {part} を使っています。"),
    )
}

/// Counts the snapshots of the volume that `volume` names.
fn snapshots(asked: &HeadlineRequest<'_>, view: &View) -> ApiResult<Words> {
    let name = asked.query.get("volume").unwrap_or_default();
    if name.is_empty() {
        return Err(invalid("volume", "it is required for the page snapshots"));
    }
    let all = [Surface::Netapp, Surface::Filestore].into_iter();
    let mut all = all.flat_map(|surface| view.every_volume(surface));
    let found = all.find(|volume| volume.name.to_string() == name);
    let volume = found.ok_or_else(|| ApiError::not_found(&abbreviate(name)))?;
    let taken: Vec<i64> = view
        .snapshots(&volume.name, None)
        .map(|snapshot| snapshot.created.secs())
        .collect();
    let (name, n) = (&volume.name.id, taken.len());
    let Some(newest) = taken.into_iter().max() else {
        return Ok(Words::new(
            format!("{name} has no snapshot."),
            format!("{name} にスナップショットはありません。"),
        ));
    };
    let many = if n == 1 { "snapshot" } else { "snapshots" };
    Ok(aged(
        current_time(asked) - newest,
        |age| format!("{name} has {n} {many}. The newest is {age} old."),
        |age| format!("{name} のスナップショットは {n} 個。最新は {age}前。"),
    ))
}

fn current_time(asked: &HeadlineRequest<'_>) -> i64 {
    i64::try_from(asked.live.book.latest()).unwrap_or(i64::MAX)
}

/// Says whether the pair is in sync or, without one, how many copies are as they should be.
fn replication(asked: &HeadlineRequest<'_>, view: &View) -> Words {
    let pair = pair_words(asked.live);
    if let Some(words) = pair {
        return words;
    }
    let all = &asked.relationships;
    let late = |r: &&Relationship| {
        let schedule = r
            .schedule
            .as_deref()
            .and_then(|name| view.relations.schedule(name));
        !r.healthy || behind(r, schedule, current_time(asked))
    };
    copies(all.len(), all.iter().filter(late).count())
}

fn behind(r: &Relationship, schedule: Option<Schedule>, now: i64) -> bool {
    let lag = r.lag(now).and_then(|lag| i64::try_from(lag).ok());
    let period = schedule.and_then(|schedule| {
        let first = schedule.next(now)?;
        Some(schedule.next(first)? - first)
    });
    lag.zip(period)
        .is_some_and(|(lag, period)| lag > 2 * period)
}

fn copies(n: usize, bad: usize) -> Words {
    match (n, bad) {
        (0, _) => Words::new(
            "No volume is replicated, and there is no pair.",
            "レプリケーションもペアもありません。",
        ),
        (1, 0) => Words::new(
            "The one copy is as its schedule asks.",
            "1 個のコピーは予定どおりです。",
        ),
        (n, 0) => Words::new(
            format!("All {n} copies are as their schedules ask."),
            format!("{n} 個のコピーは予定どおりです。"),
        ),
        (n, bad) => {
            let need = if bad == 1 { "needs" } else { "need" };
            Words::new(
                format!("{bad} of {n} copies {need} a look."),
                format!("{n} 個中 {bad} 個のコピーに確認が必要です。"),
            )
        }
    }
}

/// Names the newest change.
async fn audit(asked: &HeadlineRequest<'_>) -> ApiResult<Words> {
    if asked.actor.role < Role::Admin {
        return Ok(Words::new(
            "The audit log is for administrators.",
            "監査ログは管理者用です。",
        ));
    }
    let newest = asked.control.audit(None, 1, asked.actor).await;
    let newest = newest.map_err(ApiError::refused)?;
    let Some(entry) = newest.first() else {
        return Ok(Words::new(
            "Nothing has been changed yet.",
            "変更の記録はまだありません。",
        ));
    };
    let (who, verb) = (&entry.actor, &entry.verb);
    let what = short(&entry.target);
    Ok(aged(
        current_time(asked) - Stamp(entry.seq).secs(),
        |age| format!("The last change: {who}, {verb} {what}, {age} ago."),
        |age| format!("最新の変更：{who}、{verb} {what}、{age}前。"),
    ))
}

/// Says who can reach the server.
async fn access(asked: &HeadlineRequest<'_>) -> ApiResult<Words> {
    if asked.actor.role < Role::Admin {
        return Ok(Words::new(
            "Tokens are managed by administrators.",
            "トークンは管理者が管理します。",
        ));
    }
    if asked.actor.name == Actor::local().name {
        return Ok(Words::new(
            "Everybody who reaches this address may do everything.",
            "このアドレスに届く人は誰でも何でもできます。",
        ));
    }
    let tokens = asked.control.tokens().await.map_err(ApiError::refused)?;
    let valid = tokens.iter().filter(|token| {
        let ended = token
            .expires
            .is_some_and(|at| at.secs() <= current_time(asked));
        token.revoked.is_none() && !ended
    });
    let n = valid.count();
    let open = if n == 1 { "token opens" } else { "tokens open" };
    Ok(Words::new(
        format!("{n} {open} this server."),
        format!("有効なトークンは {n} 個です。"),
    ))
}

/// Returns the sentence of the pair, if this node is one of a pair.
fn pair_words(live: &Live) -> Option<Words> {
    let of = |language| {
        let pair = live.pair(language);
        let headline = pair.get("headline").and_then(Value::as_str);
        headline.map(str::to_owned)
    };
    Some(Words::new(of(Language::English)?, of(Language::Japanese)?))
}

impl Live {
    /// Returns the rows of the last second.
    fn rows(&self) -> Vec<SeriesRow> {
        let rows = self.book.rows(self.book.latest()).unwrap_or_default();
        rows.into_iter().map(|(_, shown)| shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Row;
    use super::*;
    use std::sync::Arc;

    fn row(kind: Kind, name: &str, bytes: f64) -> SeriesRow {
        SeriesRow {
            kind,
            name: Arc::from(name),
            row: Row {
                read_bytes: bytes,
                ..Row::default()
            },
            number: 0,
        }
    }

    #[test]
    fn the_client_that_takes_most_is_named() {
        assert_eq!(clients(&[]).to_string(), "No client moves data now.");
        let mut rows = vec![
            row(Kind::Client, "10.0.0.1", 30.0),
            row(Kind::Client, "10.0.0.2", 10.0),
        ];
        let words = clients(&rows);
        assert_eq!(
            words.text(Language::English),
            "10.0.0.1 takes 75 % of all throughput."
        );
        rows.push(row(Kind::Volume, "projects/p/locations/l/volumes/v", 20.0));
        rows.push(row(
            Kind::VolumeClient,
            "projects/p/locations/l/volumes/v 10.0.0.2",
            10.0,
        ));
        let words = clients(&rows);
        assert_eq!(words.text(Language::English), "10.0.0.2 takes 50 % of v.");
        assert_eq!(
            words.text(Language::Japanese),
            "10.0.0.2 が v の 50 % を使っています。"
        );
    }

    #[test]
    fn counts_agree_with_their_nouns() {
        for (words, expected) in [
            (counted(1, 0), "1 volume, none waits."),
            (counted(7, 1), "1 of 7 volumes waits."),
            (counted(7, 2), "2 of 7 volumes wait."),
            (copies(1, 0), "The one copy is as its schedule asks."),
            (copies(3, 1), "1 of 3 copies needs a look."),
            (copies(3, 2), "2 of 3 copies need a look."),
        ] {
            assert_eq!(words.to_string(), expected);
        }
    }

    #[test]
    fn ages_are_short() {
        for (seconds, expected) in [
            (-1, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7200, "2 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(age(seconds, Language::English), expected);
        }
    }
}
