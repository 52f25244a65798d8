use super::*;

const DESIRED: DesiredState<'_> = DesiredState { size: 3, version: "3.5.1", defragment: Some((50, 100)) };

/// Parses a cluster: one word for each member. `a` is healthy, `a!` does not respond, `a-` has lost its pod, `a~` is
/// being deleted, `a?` was added and has no pod, `a+` was added and has one, `a<` runs an old version, `a*` leads, `a%`
/// has unused space.
fn view(words: &str) -> View {
    let mut view = View { formed: true, ..View::default() };
    let mut membership = Membership { is_consistent: true, ..Membership::default() };
    for (id, word) in (1..).zip(words.split(' ')) {
        let (name, mark) = word.split_at(1);
        let is_added = matches!(mark, "?" | "+");
        membership.members.push(Member {
            id,
            name: if is_added { String::new() } else { name.into() },
            peer_urls: vec![format!("http://{name}.c.ns.svc:2380")],
        });
        let version = if mark == "<" { "3.4.9" } else { "3.5.1" };
        let leader = if mark == "*" { id } else { 99 };
        let db_size_in_use = if mark == "%" { 300 } else { 900 };
        let status = MemberStatus {
            id,
            leader,
            version: version.into(),
            db_size: 1000,
            db_size_in_use,
            ..MemberStatus::default()
        };
        if !matches!(mark, "-" | "?") {
            view.pods.push(ObservedPod {
                name: name.into(),
                version: version.into(),
                is_leaving: mark == "~",
                is_over: false,
                status: (!matches!(mark, "!" | "+" | "~")).then_some(status),
            });
        }
        if !is_added {
            view.known.push(name.into());
        }
    }
    membership.is_consistent = view.pods.iter().filter(|pod| pod.status.is_some()).count() >= membership.quorum();
    view.membership = view.pods.iter().any(|pod| pod.status.is_some()).then_some(membership);
    view
}

#[track_caller]
fn check(words: &str, step: &str) {
    let next = view(words).next(&DESIRED);
    let found = match &next {
        Step::Remove(member) => format!("Remove {}", pod_name(member).unwrap_or_default()),
        Step::Discard(name) | Step::Start(name) | Step::Upgrade(name) | Step::Defragment(name) => {
            format!("{} {name}", next.name())
        }
        Step::Seed | Step::Rebuild | Step::Add | Step::Wait(_) | Step::Rest => next.name().to_owned(),
    };
    assert_eq!(found, step, "{words}: {next}");
}

#[test]
fn observed_state_determines_the_next_step() {
    check("a b c", "Rest");
    check("a", "Add");
    check("a b?", "Start b");
    check("a b+", "Wait");
    check("a b c?", "Start c");
    check("a b c+", "Wait");
    check("a b c-", "Remove c");
    check("a b c~", "Remove c");
    check("a b c!", "Wait");
    check("a b c- d?", "Start d");
    check("a* b c d", "Remove d");
    check("a b c d*", "Remove c");
    check("a b c d?", "Remove d");
    check("a< b<", "Add");
    check("a< b< c", "Upgrade a");
    check("a< b c!", "Wait");
    check("a% b c%", "Defragment a");
    check("a% b c-", "Remove c");
}

#[test]
fn majority_is_lost_with_its_data() {
    check("a b- c-", "Rebuild");
    check("a b! c-", "Wait");
    check("a! b! c-", "Wait");
    check("a! b- c-", "Rebuild");
    check("a- b- c-", "Rebuild");
    check("a- b+", "Rebuild");
    check("a!", "Wait");
}

#[test]
fn membership_of_an_isolated_member_is_not_trusted() {
    // a reports an outdated list with b and c; d and e were observed later.
    let old = view("a b- c-");
    let mut view = view("a d! e!");
    view.membership = old.membership;
    assert!(matches!(view.next(&DESIRED), Step::Wait(_)));
}

#[test]
fn new_incarnation_starts_after_leftovers_are_deleted() {
    let mut view = View { leftovers: view("a b~").pods, ..View::default() };
    assert_eq!(view.next(&DESIRED), Step::Discard("a".into()));
    view.leftovers.remove(0);
    assert!(matches!(view.next(&DESIRED), Step::Wait(_)));
    view.leftovers.clear();
    assert_eq!(view.next(&DESIRED), Step::Seed);
}

#[test]
fn cluster_is_available_when_all_added_members_serve() {
    for (words, is_available) in
        [("a b c", true), ("a b c-", true), ("a b- c-", false), ("a b c+", false), ("a b?", false), ("a!", false)]
    {
        assert_eq!(view(words).is_available(), is_available, "{words}");
    }
}

#[test]
fn new_members_run_the_oldest_version() {
    assert_eq!(view("a b< c").joining_version("3.5.1"), "3.4.9");
    assert_eq!(view("a b").joining_version("3.5.1"), "3.5.1");
}
