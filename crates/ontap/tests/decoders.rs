//! No line that a client can send makes the command language panic.

#![allow(clippy::unwrap_used)] // A test may panic.

use proptest::prelude::*;
use weir_ontap::commands::COMMANDS;
use weir_ontap::script::Script;
use weir_ontap::{call, complete, execute, help, query, value};

/// A line that begins with a command's words and has some of its arguments, with any values.
fn lines() -> BoxedStrategy<String> {
    let values = prop_oneof![
        Just("SVM".to_owned()),
        Just("SVM:a".to_owned()),
        Just("a".to_owned()),
        "[0-9]{1,20}[kKmMgGtT%]?[bB]?",
        "[a-z0-9*|!<>.,:/\"? -]{0,12}",
        ".{0,6}",
    ];
    let command = prop::sample::select(COMMANDS.iter().collect::<Vec<_>>());
    let parts = (
        command,
        prop::collection::vec((any::<prop::sample::Index>(), values), 0..5),
    );
    parts
        .prop_map(|(command, arguments)| {
            let mut line = command.name();
            for (which, value) in arguments {
                let all = command.parameters;
                if let Some(one) = all.get(which.index(all.len().max(1))) {
                    line += &format!(" -{} {value}", one.name);
                }
            }
            line
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_carried_out_or_refused(line in prop_oneof![lines(), ".{0,40}"], cut in 0..60usize) {
        let cluster = Script::running(&["SVM:a", "SVM:b"]);
        let _ = execute(&line, &cluster);
        let start: String = line.chars().take(cut).collect();
        let _ = help(&start);
        let _ = complete(&start, |_| Vec::new());
    }

    #[test]
    fn arguments_of_programs_are_carried_out_or_refused(
        command in prop::sample::select(COMMANDS.iter().collect::<Vec<_>>()),
        arguments in prop::collection::vec(("[a-z_-]{0,12}", ".{0,8}"), 0..4),
        lenient in any::<bool>(),
    ) {
        let cluster = Script::running(&["SVM:a"]);
        let _ = call(command.path, arguments, lenient, &cluster);
    }

    #[test]
    fn values_are_read_or_refused(query in ".{0,16}", text in ".{0,16}") {
        let _ = query::matches(&query, &text);
        let _ = value::number(&text);
        let _ = value::throughput(&text);
        let _ = value::mode(&text);
        let _ = value::parse_throttle(&text);
    }
}
