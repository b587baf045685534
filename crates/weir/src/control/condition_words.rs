//! Texts of conditions, in the languages of the console. Causes that other parts give stay as they
//! are.

use weir_api::words::Words;
use weir_node::size::Size;
use weir_volume::QuotaKind;

fn words(english: impl Into<String>, japanese: impl Into<String>) -> Words {
    Words::new(english, japanese)
}

/// Returns the message for a volume that a limit of `level` holds; `limit` in bytes a second, if it
/// is the volume's own.
pub fn held(name: &str, level: &str, limit: Option<u64>) -> Words {
    let (of, of_ja) = match level {
        "POOL" => ("the limit of its pool", "プールの上限"),
        "CLIENT" => ("the limit of each client", "クライアントごとの上限"),
        _ => ("its limit", "上限"),
    };
    let rate = limit.map(|limit| format!("{}/s", Size(limit)));
    let (rate, rate_ja) = match rate {
        Some(rate) => (format!(" of {rate}"), format!(" {rate} ")),
        None => (String::new(), String::new()),
    };
    words(
        format!("{name} is held at {of}{rate}"),
        format!("{name} は{of_ja}{rate_ja}で制限されています"),
    )
}

/// Returns the message for a pool whose throughput or capacity is allocated, in percent.
pub fn allocated(name: &str, throughput: Option<f64>, capacity: Option<u64>) -> Option<Words> {
    Some(match (throughput, capacity) {
        (None, None) => return None,
        (Some(throughput), Some(capacity)) => words(
            format!(
                "{throughput:.0} % of the throughput and {capacity} % of the capacity of pool {name} are allocated"
            ),
            format!(
                "プール {name} はスループットの {throughput:.0} %、容量の {capacity} % が割り当て済みです"
            ),
        ),
        (Some(throughput), None) => words(
            format!("{throughput:.0} % of the throughput of pool {name} is allocated"),
            format!("プール {name} はスループットの {throughput:.0} % が割り当て済みです"),
        ),
        (None, Some(capacity)) => words(
            format!("{capacity} % of the capacity of pool {name} is allocated"),
            format!("プール {name} は容量の {capacity} % が割り当て済みです"),
        ),
    })
}

/// Returns what relieves an allocated pool.
pub fn enlarge_early() -> Words {
    words(
        "Enlarge the pool before another volume needs a part of it",
        "ほかのボリュームが必要とする前に、プールを拡張してください",
    )
}

/// Returns the message for a volume that is full, or `percent` full.
pub fn filled(name: &str, percent: u64, used: u64, size: u64) -> Words {
    let (used, size) = (Size(used), Size(size));
    if percent >= 100 {
        words(
            format!("{name} is full: {size}"),
            format!("{name} は満杯です（{size}）"),
        )
    } else {
        words(
            format!("{name} is {percent} % full: {used} of {size}"),
            format!("{name} は {percent} % 使われています（{size} のうち {used}）"),
        )
    }
}

/// Returns the message for a volume in which `all` users, groups and qtrees are over soft limits of
/// quotas. `named`: the first of them.
pub fn over_soft_limits(name: &str, named: &[(QuotaKind, u32)], all: usize) -> Words {
    let names = |user: &str, group: &str| {
        let owner = |(kind, id): &(QuotaKind, u32)| match kind {
            QuotaKind::User => format!("{user} {id}"),
            QuotaKind::Group => format!("{group} {id}"),
            QuotaKind::Tree => format!("qtree {id}"),
        };
        named.iter().map(owner).collect::<Vec<_>>().join(", ")
    };
    let (mut english, mut japanese) = (names("user", "group"), names("ユーザー", "グループ"));
    if let Some(more @ 1..) = all.checked_sub(named.len()) {
        english.push_str(&format!(", {more} more"));
        japanese.push_str(&format!("、ほか {more} 件"));
    }
    words(
        format!("soft limits of quotas are exceeded in {name}: {english}"),
        format!("{name} でクォータのソフト制限を超えています: {japanese}"),
    )
}

/// Returns the message and the next step for a volume with qtrees whose export policies are not
/// known: names of the qtrees and, if these are known, of the policies.
pub fn unknown_policies(name: &str, trees: &[(String, String)]) -> (Words, Words) {
    let each = trees.iter().map(|(tree, policy)| match policy.is_empty() {
        true => tree.clone(),
        false => format!("{tree} ({policy})"),
    });
    let all = each.collect::<Vec<_>>().join(", ");
    let message = words(
        format!(
            "qtrees of {name} admit nobody, because their export policies are not known: {all}"
        ),
        format!("{name} の qtree はエクスポートポリシーが不明なため、誰も受け入れません: {all}"),
    );
    let action = words(
        "Give each an export policy (`weir ontap 'volume qtree modify -export-policy …'`)",
        "それぞれにエクスポートポリシーを設定してください（`weir ontap 'volume qtree modify -export-policy …'`）",
    );
    (message, action)
}

/// Returns what relieves a quota whose soft limit is exceeded.
pub fn below_soft_limits() -> Words {
    words(
        "Have the files deleted, or raise the limits",
        "ファイルを削除してもらうか、制限を引き上げてください",
    )
}

/// Returns what relieves a full volume.
pub fn make_room() -> Words {
    words(
        "Enlarge the volume, or delete files and snapshots",
        "ボリュームを拡張するか、ファイルやスナップショットを削除してください",
    )
}

/// Returns the message and the next step for `known` findings of damaged blocks.
pub fn damaged(known: u64) -> (Words, Words) {
    let message = words(
        format!(
            "blocks of the aggregate are not what was written: scrubs and requests have met {known}"
        ),
        format!(
            "集約のブロックが書き込まれた内容と一致しません：スクラブとリクエストが {known} 件を見つけました"
        ),
    );
    let action = words(
        "Find the files with weir scrub, restore them from snapshots or backups, and check the device; a scrub that \
         finds nothing clears this",
        "weir scrub でファイルを特定し、スナップショットかバックアップから復元して、デバイスを調べてください。何も見つからないスクラブで解消します",
    );
    (message, action)
}

/// Returns the message and the next step for waiting requests that hold nearly all memory.
pub fn held_memory(held: u64, most: u64) -> (Words, Words) {
    let (held, most) = (Size(held), Size(most));
    let message = words(
        format!("requests that wait for limits hold {held} of {most} of memory"),
        format!("上限を待つリクエストがメモリ {most} のうち {held} を占めています"),
    );
    let action = words(
        "Raise the limits that hold them, or give the server more --memory",
        "リクエストを止めている上限を上げるか、サーバーの --memory を増やしてください",
    );
    (message, action)
}

/// Returns the message and the next step for defects of the server.
pub fn defects(found: u64) -> (Words, Words) {
    let message = words(
        format!("the server has found {found} defects in itself"),
        format!("サーバーが自身の不具合を {found} 件見つけました"),
    );
    let action = words(
        "Restart the server, and report the lines of its log that name them",
        "サーバーを再起動し、不具合を示すログの行を報告してください",
    );
    (message, action)
}

/// Returns the message and the next step for an intent log whose writes take `ms` milliseconds over
/// `seconds`.
pub fn log_slow(ms: u128, seconds: usize) -> (Words, Words) {
    let message = words(
        format!("a write of the intent log takes {ms} ms on the average of {seconds} s"),
        format!("インテント ログへの書き込みが {seconds} 秒平均で {ms} ms かかっています"),
    );
    let action = words(
        "Look what else uses the log's device, or put the log on a faster one (--log-dir)",
        "ログのデバイスをほかに何が使っているかを調べるか、より速いデバイスに移してください (--log-dir)",
    );
    (message, action)
}

/// Returns the message and the next step for a certificate that ends in `days`, which are negative
/// afterwards.
pub fn certificate(days: i64) -> (Words, Words) {
    let message = if days < 0 {
        words(
            "the API's certificate has expired",
            "API の証明書は期限切れです",
        )
    } else {
        words(
            format!("the API's certificate expires in {days} days"),
            format!("API の証明書はあと {days} 日で期限切れになります"),
        )
    };
    let action = words(
        "Put new files in place, and send the server SIGHUP",
        "新しいファイルを置き、サーバーに SIGHUP を送ってください",
    );
    (message, action)
}

/// Returns what relieves a pair whose witness does not answer. `alone`: the node cannot take over.
pub fn start_witness(alone: bool) -> Words {
    if alone {
        words(
            "Start the witness, or mend the way to it; without it neither node can take over",
            "ウィットネスを起動するか、経路を直してください。ウィットネスなしではどちらのノードも引き継げません",
        )
    } else {
        words(
            "Start the witness, or mend the way to it",
            "ウィットネスを起動するか、経路を直してください",
        )
    }
}

/// Returns the message and the next step for a partner that lacks changes.
pub fn out_of_sync(partner: &str, trouble: &str) -> (Words, Words) {
    let (why, why_ja) = if trouble.is_empty() {
        (String::new(), String::new())
    } else {
        (format!(": {trouble}"), format!("：{trouble}"))
    };
    let message = words(
        format!("node {partner} of the pair lacks changes{why}"),
        format!("ペアのノード {partner} に未反映の変更があります{why_ja}"),
    );
    let action = words(
        "Start the partner, or mend the way to it; this node serves alone meanwhile",
        "相手のノードを起動するか、経路を直してください。その間はこのノードだけで提供します",
    );
    (message, action)
}

/// Returns the message and the next step for an aggregate without a standby.
pub fn no_standby() -> (Words, Words) {
    let message = words(
        "no server stands by for this one any more: nobody takes over if it fails",
        "このサーバーのスタンバイがなくなりました。障害が起きても引き継ぐサーバーがありません",
    );
    let action = words(
        "Start the other server again with --standby, or this one if none is wanted any more",
        "もう一方のサーバーを --standby で起動してください。不要であれば、このサーバーを再起動してください",
    );
    (message, action)
}

/// Returns what relieves a volume that the limit of its pool holds.
pub fn enlarge_or_move() -> Words {
    words(
        "Enlarge the pool, or move a busy volume to another",
        "プールを拡張するか、負荷の高いボリュームをほかへ移してください",
    )
}

/// Returns what relieves a volume that the limits of its clients hold.
pub fn raise_clients() -> Words {
    words(
        "Raise the limit of each client, or spread the load over more clients",
        "クライアントごとの上限を上げるか、負荷をより多くのクライアントに分けてください",
    )
}

/// Returns what relieves an instance that its limit holds.
pub fn raise_limit() -> Words {
    words(
        "Raise the limit, or enlarge the instance",
        "上限を上げるか、インスタンスを拡張してください",
    )
}

/// Returns what relieves a volume whose pool has `free` MiB/s left.
pub fn raise_throughput(pool: &str, free: f64) -> Words {
    words(
        format!("Raise the volume's throughput: {free:.0} MiB/s of pool {pool} are unallocated"),
        format!(
            "ボリュームのスループットを上げてください。プール {pool} に未割り当てが {free:.0} MiB/s あります"
        ),
    )
}

/// Returns what relieves a volume whose pool has nothing left.
pub fn enlarge_pool(pool: &str) -> Words {
    words(
        format!("Enlarge pool {pool}: all its throughput is allocated"),
        format!("プール {pool} を拡張してください。スループットはすべて割り当て済みです"),
    )
}

/// Returns what relieves a volume whose throughput follows its capacity.
pub fn enlarge_volume() -> Words {
    words(
        "Enlarge the volume: its throughput follows its capacity",
        "ボリュームを拡張してください。スループットは容量に従います",
    )
}

/// Returns the message and the next step for a replication that fails; the cause, if one is known.
pub fn fails(source: &str, to: &str, why: Option<&str>) -> (Words, Words) {
    let message = words(
        format!(
            "the copy of {source} at {to} fails: {}",
            why.unwrap_or("it is not healthy")
        ),
        format!(
            "{to} にある {source} のコピーが失敗しています：{}",
            why.unwrap_or("正常ではありません")
        ),
    );
    let action = words(
        "Mend the cause; the next transfer goes on from where the last one ended",
        "原因を直してください。次の転送は前回の続きから始まります",
    );
    (message, action)
}

/// Returns the message for a copy that is older than its schedule asks, both in minutes.
pub fn late(source: &str, to: &str, minutes: i64, period: i64) -> Words {
    words(
        format!(
            "the copy of {source} at {to} is {minutes} minutes old, of a schedule of {period} minutes"
        ),
        format!(
            "{to} にある {source} のコピーは {minutes} 分前のものです（スケジュールは {period} 分ごと）"
        ),
    )
}

/// Returns what relieves a late copy, by the throttle that holds its transfer.
pub fn hurry(throttle: Option<&str>) -> Words {
    match throttle {
        Some("relationship") => words(
            "Raise the relationship's throttle, which holds the transfer",
            "転送を制限している関係の帯域制限を上げてください",
        ),
        Some(_) => words(
            "Raise the node's throttle, which holds the transfer",
            "転送を制限しているノードの帯域制限を上げてください",
        ),
        None => words(
            "Look at the last transfer, and at the way between the nodes",
            "前回の転送と、ノード間の経路を調べてください",
        ),
    }
}
