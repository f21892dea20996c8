//! The hook, in a process of its own: it is the whole process's.

use program_log::{panics, watch_panics};

#[test]
fn panic_is_counted_and_ends_its_own_thread_only() {
    watch_panics();
    let before = panics();
    let ended = std::thread::spawn(|| panic!("on purpose")).join();
    assert!(ended.is_err());
    assert_eq!(panics(), before + 1);
}
