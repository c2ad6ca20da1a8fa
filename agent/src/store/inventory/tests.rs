use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let temp = tempfile::tempdir().expect("a folder");
    let store = Store::open(temp.path()).expect("new");
    (temp, store)
}

fn web() -> Name {
    "web".parse().expect("a name")
}

fn inventory(objects: usize) -> Inventory {
    let item = |n: usize| {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("object-{n:05}"), "namespace": "shop"}});
        let manifest = crate::object::Manifest::read(body, "test".into()).expect("a manifest");
        Item { uid: Some(format!("uid-{n}")), applied: Some(manifest.digest()), ..Item::new(&manifest) }
    };
    let items = (0..objects).map(item).collect();
    Inventory { items, settled: Some(Digest::of(b"1")), incarnation: Some(1), doomed: None }
}

fn good(store: &Store) -> Inventory {
    store.inventory(&web()).expect("readable").good().expect("it is good")
}

/// The files of the sharded inventory, with what makes each of them the same file.
fn files_of(store: &Store) -> BTreeMap<String, (u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let dir = store.shards(&web());
    let entry = |name: String| {
        let metadata = fs::metadata(dir.join(&name)).expect("it is there");
        (name, (metadata.ino(), metadata.len()))
    };
    files::list(&dir).expect("it is there").into_iter().map(entry).collect()
}

#[test]
fn an_inventory_is_absent_good_or_corrupt() {
    let (temp, store) = store();
    assert_eq!(store.inventory(&web()).expect("readable"), Found::Absent);
    let small = inventory(2);
    store.save_inventory(&web(), &small).expect("written");
    assert_eq!(good(&store), small);
    assert_eq!(store.services_with_inventory().expect("listed"), [web()]);
    fs::write(temp.path().join("inventory/web.json"), "{}").expect("damaged");
    assert!(matches!(store.inventory(&web()), Ok(Found::Corrupt(_))));
    store.save_inventory(&web(), &Inventory::default()).expect("removed");
    assert_eq!(store.inventory(&web()).expect("readable"), Found::Absent);
}

#[test]
fn ten_thousand_objects_are_listed_and_a_change_of_one_writes_one_small_file() {
    let (_temp, store) = store();
    let mut large = inventory(10_000);
    store.save_inventory(&web(), &large).expect("written");
    assert_eq!(good(&store), large);
    let before = files_of(&store);
    assert_eq!(before.len(), usize::from(SHARDS) + 1);
    large.items[4711].uid = Some("another".to_owned());
    store.save_inventory(&web(), &large).expect("written");
    assert_eq!(good(&store), large);
    let after = files_of(&store);
    let written: Vec<_> = after.iter().filter(|(name, file)| before.get(*name) != Some(file)).collect();
    let [(name, (_, size))] = &written[..] else { panic!("{written:?}") };
    assert!(*name != HEAD && *size < 100_000, "{written:?}");
}

#[test]
fn a_large_inventory_takes_the_place_of_a_small_one_and_goes_without_a_trace() {
    let (temp, store) = store();
    store.save_inventory(&web(), &inventory(WHOLE_LIMIT)).expect("written");
    assert!(store.whole(&web()).is_file());
    let large = inventory(WHOLE_LIMIT + 1);
    store.save_inventory(&web(), &large).expect("written");
    assert!(!store.whole(&web()).exists());
    assert_eq!(good(&store), large);
    // It stays sharded when it shrinks: nothing is written twice because of a number.
    store.save_inventory(&web(), &inventory(3)).expect("written");
    assert_eq!(good(&store), inventory(3));
    assert_eq!(store.services_with_inventory().expect("listed"), [web()]);
    store.save_inventory(&web(), &Inventory::default()).expect("removed");
    assert_eq!(store.inventory(&web()).expect("readable"), Found::Absent);
    let left = fs::read_dir(temp.path().join("inventory")).expect("the folder").count();
    assert_eq!(left, 0);
}

#[test]
fn an_inventory_of_the_layout_before_is_read() {
    let (_temp, store) = store();
    let large = inventory(5_000);
    files::save(&store.whole(&web()), &large).expect("written as before");
    assert_eq!(good(&store), large);
    store.save_inventory(&web(), &large).expect("written");
    assert!(!store.whole(&web()).exists());
    assert_eq!(good(&store), large);
}

#[test]
fn a_power_cut_between_files_lists_nothing_less_than_before_the_write_or_after_it() {
    let (old, new) = (inventory(1_500), inventory(3_000));
    let shards: Vec<String> = (0..SHARDS).map(file_name).collect();
    let (_new_temp, written) = store();
    written.save_inventory(&web(), &new).expect("written");
    for is_sharded in [true, false] {
        let (_temp, store) = store();
        match is_sharded {
            true => store.save_inventory(&web(), &old).expect("written"),
            false => files::save(&store.whole(&web()), &old).expect("written as before"),
        }
        let dir = store.shards(&web());
        fs::create_dir_all(&dir).expect("a folder");
        // The order of writing: shards, head, and then the one file of the layout before goes. Each cut comes later
        // than the last one.
        let mut next = 0;
        for cut in (0..=shards.len()).step_by(8) {
            for name in &shards[next..cut] {
                fs::copy(written.shards(&web()).join(name), dir.join(name)).expect("copied");
            }
            next = cut;
            let listed = good(&store);
            assert_eq!(listed.settled, old.settled);
            let listed: BTreeMap<_, _> = listed.items.iter().map(|item| (&item.key, item)).collect();
            for item in &old.items {
                assert_eq!(listed.get(&item.key), Some(&item), "after {cut} shards");
            }
        }
    }
}

#[test]
fn of_a_whole_file_and_shards_the_newer_counts_and_what_it_lists_stays_listed() {
    let old = inventory(1_500);
    // Two objects left, many came, and one was applied anew.
    let mut new = inventory(3_000);
    new.items.drain(..2);
    new.items[0].uid = Some("another".to_owned());
    new.settled = Some(Digest::of(b"2"));
    let (_temp, store) = store();
    files::save(&store.whole(&web()), &old).expect("written");

    // The power went before the head was written: what was listed then is listed.
    let dir = store.shards(&web());
    files::make_folder(&dir).expect("made");
    write_shards(&dir, &new).expect("written");
    let head = fs::read(dir.join(HEAD)).expect("there");
    fs::remove_file(dir.join(HEAD)).expect("removed");
    assert_eq!(good(&store), old);
    assert_eq!(store.services_with_inventory().expect("listed"), [web()]);

    // It went before the one file was removed: the shards are newer, and what had left them stays away.
    fs::write(dir.join(HEAD), head).expect("written");
    assert!(store.whole(&web()).is_file());
    assert_eq!((good(&store), store.salvage(&web()).expect("readable")), (new.clone(), new.clone()));
    assert_eq!(store.services_with_inventory().expect("listed"), [web()]);

    // Whatever is written next leaves one of them.
    store.save_inventory(&web(), &new).expect("written");
    assert!(!store.whole(&web()).exists());
    assert_eq!(good(&store), new);
}

#[test]
fn a_damaged_shard_loses_only_what_it_listed_and_is_made_good_by_the_next_write() {
    let (_temp, store) = store();
    let large = inventory(2_000);
    store.save_inventory(&web(), &large).expect("written");
    let victim = file_name(shard_of(&large.items[7].key));
    fs::write(store.shards(&web()).join(&victim), "sha256 0\n[]").expect("damaged");
    let Found::Corrupt(why) = store.inventory(&web()).expect("readable") else { panic!("it is damaged") };
    assert!(why.starts_with(&victim), "{why}");
    let rest = store.salvage(&web()).expect("readable");
    assert!(rest.items.len() > 1_800 && !rest.items.contains(&large.items[7]));
    assert_eq!(rest.incarnation, Some(1));
    store.save_inventory(&web(), &rest).expect("written");
    assert_eq!(good(&store), rest);
}

#[test]
fn what_a_power_cut_left_of_a_removal_is_cleared_away() {
    let (temp, store) = store();
    store.save_inventory(&web(), &inventory(2_000)).expect("written");
    let gone = store.shards(&web()).with_file_name(format!("{GONE}web"));
    fs::rename(store.shards(&web()), &gone).expect("renamed");
    assert_eq!(store.services_with_inventory().expect("listed"), [] as [Name; 0]);
    drop(store);
    drop(Store::open(temp.path()).expect("it is free"));
    assert!(!gone.exists());
}
