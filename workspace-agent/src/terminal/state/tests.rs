use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const RING: usize = 64;

fn joining(page: u128, from: Option<u64>) -> Joining {
    Joining { page: PageId(page), may_type: true, from, window: None }
}

fn terminal() -> Terminal {
    Terminal::new(Size::USUAL, RING_BYTES_MAX)
}

fn drain(terminal: &mut Terminal, viewer: ViewerId) -> Vec<ToPage> {
    std::iter::from_fn(|| match terminal.next(viewer) {
        ViewerInput::Message(message) => Some(message),
        ViewerInput::Nothing | ViewerInput::Gone => None,
    })
    .collect()
}

fn output(messages: &[ToPage]) -> Vec<u8> {
    let outputs = messages.iter().filter_map(|message| match message {
        ToPage::Output(bytes) => Some(bytes.to_vec()),
        ToPage::Welcome { .. }
        | ToPage::Skipped { .. }
        | ToPage::Size { .. }
        | ToPage::Viewers(_)
        | ToPage::Taken(_)
        | ToPage::Ended(_)
        | ToPage::Job(_)
        | ToPage::Beat => None,
    });
    outputs.flatten().collect()
}

fn size(columns: u16) -> Size {
    Size { columns, rows: 24 }
}

#[test]
fn page_that_comes_back_goes_on_where_it_was() {
    let mut terminal = terminal();
    let first = terminal.join(joining(1, None)).unwrap();
    terminal.said(b"one ");
    let messages = drain(&mut terminal, first);
    assert_eq!(messages[0], ToPage::Welcome { may_type: true, fresh: true, from: 0, news_from: 0, taken: 0 });
    assert_eq!(output(&messages), b"one ");
    terminal.typed(first, 0, "ls".into()).unwrap();
    terminal.leave(first);
    terminal.said(b"two");
    let second = terminal.join(joining(1, Some(4))).unwrap();
    let messages = drain(&mut terminal, second);
    assert_eq!(messages[0], ToPage::Welcome { may_type: true, fresh: false, from: 4, news_from: 4, taken: 2 });
    assert_eq!(output(&messages), b"two");
    let other = terminal.join(joining(2, None)).unwrap();
    let messages = drain(&mut terminal, other);
    assert_eq!(messages[0], ToPage::Welcome { may_type: true, fresh: true, from: 0, news_from: 7, taken: 0 });
}

#[test]
fn newer_connection_of_a_page_ends_the_older_one() {
    let mut terminal = terminal();
    let old = terminal.join(joining(1, None)).unwrap();
    let new = terminal.join(joining(1, None)).unwrap();
    assert_eq!((terminal.next(old), terminal.viewers()), (ViewerInput::Gone, 1));
    assert_eq!(terminal.typed(old, 0, "x".into()), Err(Misuse::Gone));
    assert_eq!(terminal.typed(new, 0, "x".into()).as_deref(), Ok(&b"x"[..]));
}

#[test]
fn what_is_typed_twice_is_taken_once_and_a_gap_is_refused() {
    let mut terminal = terminal();
    let viewer = terminal.join(joining(1, None)).unwrap();
    assert_eq!(terminal.typed(viewer, 0, "abc".into()).as_deref(), Ok(&b"abc"[..]));
    assert_eq!(terminal.typed(viewer, 1, "bcde".into()).as_deref(), Ok(&b"de"[..]));
    assert_eq!(terminal.typed(viewer, 0, "ab".into()).as_deref(), Ok(&b""[..]));
    assert_eq!(terminal.typed(viewer, 6, "x".into()), Err(Misuse::Numbers));
    assert!(drain(&mut terminal, viewer).contains(&ToPage::Taken(5)));
}

#[test]
fn who_may_only_look_types_nothing_and_decides_nothing() {
    let mut terminal = terminal();
    let reader = Joining { may_type: false, window: Some(size(10)), ..joining(1, None) };
    let reader = terminal.join(reader).unwrap();
    assert_eq!(terminal.typed(reader, 0, "x".into()), Err(Misuse::ReadOnly));
    terminal.resized(reader, size(11));
    assert_eq!((terminal.size(), terminal.progress()), (Size::USUAL, None));
    let told = drain(&mut terminal, reader);
    assert!(told.contains(&ToPage::Size { size: Size::USUAL, leads: false }), "{told:?}");
}

#[test]
fn size_is_that_of_the_window_in_which_somebody_typed_last() {
    let mut terminal = terminal();
    let first = terminal.join(Joining { window: Some(size(100)), ..joining(1, None) }).unwrap();
    let second = terminal.join(Joining { window: Some(size(50)), ..joining(2, None) }).unwrap();
    assert_eq!(terminal.size(), size(100), "who came first, while nobody typed");
    terminal.typed(second, 0, "x".into()).unwrap();
    assert_eq!(terminal.size(), size(50));
    terminal.resized(first, size(90));
    assert_eq!(terminal.size(), size(50));
    drain(&mut terminal, first);
    // A connection that is made anew leads like the one before.
    let second = terminal.join(Joining { window: Some(size(51)), ..joining(2, None) }).unwrap();
    assert_eq!(terminal.size(), size(51));
    terminal.leave(second);
    assert_eq!(terminal.size(), size(90));
    assert!(drain(&mut terminal, first).contains(&ToPage::Size { size: size(90), leads: true }));
    terminal.leave(first);
    assert_eq!(terminal.size(), size(90), "it stays while nobody looks");
}

#[test]
fn no_more_is_sent_than_a_page_shows() {
    let mut terminal = terminal();
    let viewer = terminal.join(joining(1, None)).unwrap();
    terminal.said(&vec![b'x'; RING_BYTES_MAX / 2]);
    assert_eq!(output(&drain(&mut terminal, viewer)).len() as u64, UNSHOWN_BYTES_MAX);
    terminal.shown(viewer, 1000).unwrap();
    assert_eq!(output(&drain(&mut terminal, viewer)).len(), 1000);
    assert_eq!(terminal.shown(viewer, UNSHOWN_BYTES_MAX + 1001), Err(Misuse::Numbers));
    assert_eq!(terminal.progress(), Some(PageProgress { shown: 1000, end: RING_BYTES_MAX as u64 / 2 }));
}

#[test]
fn end_is_told_once_behind_the_last_word() {
    let mut terminal = terminal();
    let viewer = terminal.join(joining(1, None)).unwrap();
    terminal.said(b"bye");
    terminal.ended(Some(3));
    let messages = drain(&mut terminal, viewer);
    assert_eq!(messages[messages.len() - 2..], [ToPage::Output("bye".into()), ToPage::Ended(Some(3))]);
    assert_eq!(terminal.next(viewer), ViewerInput::Nothing);
}

#[test]
fn viewers_and_remembered_pages_are_bounded() {
    let mut terminal = terminal();
    for page in 0..1000 {
        let viewer = terminal.join(joining(page, None)).unwrap();
        if page > 0 {
            terminal.leave(viewer);
        } else {
            terminal.typed(viewer, 0, "x".into()).unwrap();
        }
    }
    assert!(terminal.pages.len() <= PAGES_MAX);
    assert!(terminal.pages.contains(&(PageId(0), 1)), "a page that is here is not forgotten");
    for page in 1..VIEWERS_MAX as u128 {
        terminal.join(joining(page, None)).unwrap();
    }
    assert_eq!(terminal.join(joining(5000, None)), Err(TooManyViewers));
    assert!(terminal.join(joining(1, None)).is_ok(), "one that was here may come again");
}

#[test]
fn those_who_only_look_neither_keep_out_who_types_nor_make_its_typing_forgotten() {
    let looking = |page| Joining { may_type: false, ..joining(page, None) };
    let mut terminal = terminal();
    let owner = terminal.join(joining(0, None)).unwrap();
    terminal.typed(owner, 0, "ls".into()).unwrap();
    terminal.leave(owner);
    for page in 1..=4 * PAGES_MAX as u128 {
        let viewer = terminal.join(looking(page)).unwrap();
        terminal.leave(viewer);
    }
    for page in 1..=VIEWERS_MAX as u128 {
        terminal.join(looking(page)).unwrap();
    }
    assert_eq!(terminal.join(looking(5000)), Err(TooManyViewers));
    let owner = terminal.join(joining(0, None)).expect("one of them makes room");
    assert_eq!(terminal.viewers(), VIEWERS_MAX);
    assert_eq!(terminal.typed(owner, 0, "ls\n".into()).unwrap(), "\n", "what it typed before counts once");
}

#[derive(Clone, Debug)]
enum Step {
    Said(usize),
    /// A page connects, from where it was or without knowing.
    Join {
        page: u128,
        knows: bool,
    },
    Leave {
        page: u128,
    },
    Take {
        page: u128,
        messages: usize,
    },
    Show {
        page: u128,
    },
    /// A page types, and its connection may break before it hears that this was taken.
    Type {
        page: u128,
        bytes: usize,
        breaks: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = 0..3_u128;
    let step = prop_oneof![
        (0..RING * 2).prop_map(Step::Said),
        (page.clone(), any::<bool>()).prop_map(|(page, knows)| Step::Join { page, knows }),
        page.clone().prop_map(|page| Step::Leave { page }),
        (page.clone(), 0..6_usize).prop_map(|(page, messages)| Step::Take { page, messages }),
        page.clone().prop_map(|page| Step::Show { page }),
        (page, 1..9_usize, any::<bool>()).prop_map(|(page, bytes, breaks)| Step::Type { page, bytes, breaks }),
    ];
    prop::collection::vec(step, 0..60)
}

/// A page as its script is: it counts, and keeps what it typed until that was taken.
#[derive(Default)]
struct Page {
    viewer: Option<ViewerId>,
    at: Option<u64>,
    typed: Vec<u8>,
    taken: usize,
}

impl Page {
    fn hear(&mut self, message: ToPage, said: &[u8]) {
        match message {
            ToPage::Welcome { fresh, from, taken, .. } => {
                assert!(fresh || self.at == Some(from), "it goes on where it was, or begins anew");
                (self.at, self.taken) = (Some(from), usize::try_from(taken).unwrap());
            }
            ToPage::Output(bytes) => {
                let at = usize::try_from(self.at.unwrap()).unwrap();
                assert_eq!(&said[at..at + bytes.len()], &bytes[..], "no byte is lost, repeated or changed");
                self.at = Some((at + bytes.len()) as u64);
            }
            ToPage::Skipped { to } => {
                assert!(to > self.at.unwrap(), "only forwards");
                self.at = Some(to);
            }
            ToPage::Taken(taken) => self.taken = usize::try_from(taken).unwrap(),
            ToPage::Size { .. } | ToPage::Viewers(_) | ToPage::Ended(_) | ToPage::Job(_) | ToPage::Beat => {}
        }
    }
}

proptest! {
    #[test]
    fn every_page_sees_what_was_said_and_types_everything_once(steps in steps()) {
        let mut terminal = Terminal::new(Size::USUAL, RING);
        let (mut said, mut count) = (Vec::new(), 0_usize);
        let mut pages: BTreeMap<u128, Page> = BTreeMap::new();
        // What reached the shell, by page.
        let mut arrived: BTreeMap<u128, Vec<u8>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Said(bytes) => {
                    let new: Vec<u8> = (0..bytes).map(|number| b"0123456789\n"[(count + number) % 11]).collect();
                    count += bytes;
                    terminal.said(&new);
                    said.extend(new);
                }
                Step::Join { page, knows } => {
                    let known = pages.entry(page).or_default();
                    let joining = joining(page, known.at.filter(|_| knows));
                    known.viewer = Some(terminal.join(joining).unwrap());
                    let viewer = known.viewer.unwrap();
                    if let ViewerInput::Message(welcome) = terminal.next(viewer) {
                        known.hear(welcome, &said);
                    }
                    // What was not taken is typed again, and perhaps some of what was.
                    let from = if knows { known.taken } else { known.taken / 2 };
                    let rest = known.typed[from..].to_vec();
                    if !rest.is_empty() {
                        let new = terminal.typed(viewer, from as u64, rest.into()).unwrap();
                        arrived.entry(page).or_default().extend(new);
                    }
                }
                Step::Leave { page } => {
                    if let Some(viewer) = pages.entry(page).or_default().viewer.take() {
                        terminal.leave(viewer);
                    }
                }
                Step::Take { page, messages } => {
                    let known = pages.entry(page).or_default();
                    let Some(viewer) = known.viewer else { continue };
                    for _ in 0..messages {
                        let ViewerInput::Message(message) = terminal.next(viewer) else { break };
                        known.hear(message, &said);
                    }
                }
                Step::Show { page } => {
                    let known = pages.entry(page).or_default();
                    if let (Some(viewer), Some(at)) = (known.viewer, known.at) {
                        prop_assert_eq!(terminal.shown(viewer, at), Ok(()));
                    }
                }
                Step::Type { page, bytes, breaks } => {
                    let known = pages.entry(page).or_default();
                    let Some(viewer) = known.viewer else { continue };
                    let offset = known.typed.len() as u64;
                    let letters = b'a'..=b'z';
                    let new: Vec<u8> = letters.cycle().skip(known.typed.len() % 26).take(bytes).collect();
                    known.typed.extend(&new);
                    let taken = terminal.typed(viewer, offset, new.into()).unwrap();
                    arrived.entry(page).or_default().extend(taken);
                    if breaks {
                        known.viewer = None;
                    }
                }
            }
            prop_assert!(terminal.viewers() <= 3 && terminal.pages.len() <= 3);
        }
        for (page, known) in &pages {
            let arrived = arrived.get(page).map_or(&[][..], Vec::as_slice);
            prop_assert_eq!(arrived, &known.typed[..]);
        }
    }
}
