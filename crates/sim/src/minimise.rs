//! Shrinks a failing sequence of operations (delta debugging, Zeller and Hildebrandt 2002).
//!
//! Slots keep their meaning when operations disappear, so any subsequence is a valid test.

/// The shortest subsequence found for which `fails` still holds, within `budget` trials. `fails`
/// must hold for `list`.
pub fn minimise<T: Clone>(
    list: &[T],
    mut budget: u32,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut best = list.to_vec();
    // Everything after the failing operation is noise: cut the tail first.
    let (mut low, mut high) = (0, best.len());
    while low < high && budget > 0 {
        budget -= 1;
        let middle = (low + high) / 2;
        if fails(&best[..middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if high < best.len() && fails(&best[..high]) {
        best.truncate(high);
    }
    let mut piece = best.len().div_ceil(2);
    while piece > 0 && budget > 0 {
        let mut at = 0;
        let mut shrunk = false;
        while at < best.len() && budget > 0 {
            let end = (at + piece).min(best.len());
            let trial: Vec<T> = best[..at].iter().chain(&best[end..]).cloned().collect();
            budget -= 1;
            if fails(&trial) {
                best = trial;
                shrunk = true;
            } else {
                at = end;
            }
        }
        if piece == 1 && !shrunk {
            break;
        }
        if !shrunk || piece > 1 {
            piece = (piece / 2).max(1);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_two_that_matter() {
        let list: Vec<u32> = (0..500).collect();
        let got = minimise(&list, 2000, |list| {
            list.contains(&17) && list.contains(&311)
        });
        assert_eq!(got, [17, 311]);
    }
}
