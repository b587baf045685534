//! Numbers formatted for people.

/// Groups digits by thousands: `2560` becomes `2,560`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats up to three decimals, without trailing zeros: `128.5`, `2,560`.
pub fn decimal(n: f64) -> String {
    let thousandths = (n * 1000.0).round().max(0.0) as u64;
    let whole = count(thousandths / 1000);
    match thousandths % 1000 {
        0 => whole,
        rest => format!("{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
    }
}

/// Formats GiB, as TiB if that is shorter: `40 TiB`, `100 GiB`.
pub fn gib(gib: u64) -> String {
    if gib >= 1024 {
        format!("{} TiB", decimal(gib as f64 / 1024.0))
    } else {
        format!("{gib} GiB")
    }
}

/// Formats Filestore's GB (of 2^30 bytes), as TB if that is shorter.
pub fn gb(gb: u64) -> String {
    if gb >= 1024 {
        format!("{} TB ({gb} GB)", decimal(gb as f64 / 1024.0))
    } else {
        format!("{gb} GB")
    }
}

/// Formats bytes in the largest suitable unit: `22.3 GiB`, `512 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let fits = |n: &usize| bytes >> (10 * n) > 0;
    let at = (1..UNITS.len()).rev().find(fits).unwrap_or(0);
    let value = bytes as f64 / (1u64 << (10 * at)) as f64;
    let unit = UNITS.get(at).copied().unwrap_or_default();
    format!("{} {unit}", decimal((value * 10.0).round() / 10.0))
}

/// Formats bytes a second in MiB/s.
pub fn mibps(bytes: u64) -> String {
    format!("{} MiB/s", decimal(bytes as f64 / crate::levels::MIB))
}

/// Formats bytes a second in MB/s (10^6).
pub fn mbps(bytes: u64) -> String {
    format!("{} MB/s", decimal(bytes as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(25_600), "25,600");
        assert_eq!(count(1_048_576), "1,048,576");
        assert_eq!(decimal(128.0), "128");
        assert_eq!(decimal(1234.5), "1,234.5");
        assert_eq!(decimal(0.06), "0.06");
        assert_eq!(gib(40_960), "40 TiB");
        assert_eq!(gib(100), "100 GiB");
        assert_eq!(gib(1536), "1.5 TiB");
        assert_eq!(mibps(4608 << 20), "4,608 MiB/s");
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(1023), "1,023 bytes");
        assert_eq!(size(512 << 20), "512 MiB");
        assert_eq!(size((22 << 30) + (300 << 20)), "22.3 GiB");
        assert_eq!(size(u64::MAX), "16,384 PiB");
    }
}
