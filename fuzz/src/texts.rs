//! What people and tools type: capabilities, keyrings, ceph.conf, commands.

use admin::command::{Command, Signature};
use admin::conf::{Conf, MetaVars, expand};
use auth::{Keyring, caps};
use crush::CrushMap;
use types::{EntityKind, EntityName};

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

fn bytes(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}

pub fn caps(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let _ = text.parse::<caps::MonCaps>();
    let _ = text.parse::<caps::OsdCaps>();
    let _ = text.parse::<caps::MgrCaps>();
}

pub fn caps_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        "allow *",
        "allow r, allow rw pool=rbd namespace=a object_prefix b, allow class rbd metadata_list",
        "profile rbd pool=vms, allow x network 10.0.0.0/8",
        "allow command \"osd pool ls\" with format=json key prefix \"x\"",
        "allow rwx tag cephfs data=*",
    ])
}

pub fn keyring(data: &[u8]) {
    if let Some(text) = text(data) {
        let _ = text.parse::<Keyring>();
    }
}

pub fn keyring_seeds() -> Vec<Vec<u8>> {
    bytes(&["# c\n[client.admin]\n\tkey = AQDXxxxxAAAAABAAxxxxxxxxxxxxxxxxxxxxxx==\n\tcaps mon = \"allow *\"\n"])
}

pub fn conf(data: &[u8]) {
    let Some(Ok(conf)) = text(data).map(Conf::parse) else { return };
    let name = EntityName::new(EntityKind::OSD, "0");
    let vars = MetaVars { cluster: "ceph".into(), name: name.clone(), host: "h".into(), pid: 1 };
    for value in conf.options(&name).values() {
        expand(value, &vars, &|option| conf.get(&name, option).map(str::to_owned));
    }
}

pub fn conf_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        "# c\n[global]\nfsid = 7c0a\nmon host = [v2:127.0.0.1:3300]\nlog file = $run_dir/${cluster}-$name.log\nrun dir = /x\n",
        "[osd.0]\n\tosd-data=\"/a b\" ; c\nlong = 1 \\\n 2\n",
    ])
}

pub fn admin_socket(data: &[u8]) {
    let _ = admin::socket::request(data);
}

pub fn admin_socket_seeds() -> Vec<Vec<u8>> {
    let mut seeds = bytes(&["{\"prefix\": \"config set\", \"var\": \"a\", \"val\": [\"b\"]}\0", "version\n"]);
    seeds.extend([[0; 4].to_vec(), [0, 0, 0, 1].to_vec()]);
    seeds
}

pub fn command(data: &[u8]) {
    const SIGNATURES: [&str; 3] = [
        "osd pool create pool:pool pg_num:int?",
        "osd down ids:osdname*",
        "pg scrub pgid:pgid",
    ];
    let Some(Ok(command)) = text(data).map(|t| Command::parse(&[t.to_owned()])) else { return };
    for signature in SIGNATURES.iter().filter_map(|s| Signature::parse(s).ok()) {
        let _ = signature.check(&command);
    }
}

pub fn command_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        r#"{"prefix": "osd pool create", "pool": "a", "pg_num": 8, "format": "json"}"#,
        r#"{"prefix": "osd down", "ids": ["1", "osd.2", "all"]}"#,
        r#"{"prefix": "pg scrub", "pgid": "1.2f"}"#,
    ])
}

pub fn crush_text(data: &[u8]) {
    let Some(map) = text(data).and_then(|text| CrushMap::compile(text).ok()) else { return };
    map.do_rule(0, 42, 3, &[0x10000; 8], None);
    map.decompile().to_string();
}

pub fn crush_text_seeds() -> Vec<Vec<u8>> {
    let mut map = CrushMap::build_default(&[(0, "a", 0x10000), (1, "b", 0x8000)], "host").unwrap();
    map.set_device_class(1, "ssd").unwrap();
    map.create_weight_set(crush::COMPAT_WEIGHT_SET, 2).unwrap();
    bytes(&[&map.decompile().to_string()])
}
