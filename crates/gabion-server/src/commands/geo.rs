//! Places on the earth: `GEOADD`, `GEOSEARCH`, and their kin.

#![expect(
    clippy::cast_possible_truncation,
    reason = "scores are whole numbers below 2^52"
)]

use std::ops::Bound;

use crate::args::{Args, float};
use crate::command::{
    Command, CommandGroup, DENYOOM, DIRECT, READONLY, WRITE, command, parse_integer,
};
use crate::commands::zset_ranges::store;
use crate::events::EventClasses;
use crate::execution::Execution;
use crate::fault::{Fault, Result};
use crate::geo::{GeoPoint, GeoShape, LAT_MAX, LON_MAX};
use crate::store::scored::{ScoredMember, SortedSet, SortedSetRange};

const ABOUT: CommandGroup = CommandGroup::Geo;

pub(crate) const COMMANDS: &[Command] = &[
    command("geoadd", -5, geoadd)
        .flags(WRITE | DENYOOM | DIRECT)
        .keys(1, 1, 1)
        .about(ABOUT, "3.2.0", "Adds places."),
    command("geodist", -4, geodist)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "3.2.0", "Returns the distance of two members."),
    command("geohash", -2, geohash)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "3.2.0", "Returns members as geohash strings."),
    command("geopos", -2, geopos)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "3.2.0", "Returns longitudes and latitudes."),
    command("georadius", -6, georadius)
        .flags(WRITE | DENYOOM)
        .stored_keys("STORE")
        .about(
            ABOUT,
            "3.2.0",
            "Returns members within a radius of a point.",
        ),
    command("georadius_ro", -6, georadius_ro)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "3.2.10",
            "Returns members within a radius of a point.",
        ),
    command("georadiusbymember", -5, georadiusbymember)
        .flags(WRITE | DENYOOM)
        .stored_keys("STORE")
        .about(
            ABOUT,
            "3.2.0",
            "Returns members within a radius of another member.",
        ),
    command("georadiusbymember_ro", -5, georadiusbymember_ro)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(
            ABOUT,
            "3.2.10",
            "Returns members within a radius of another member.",
        ),
    command("geosearch", -7, geosearch)
        .flags(READONLY)
        .keys(1, 1, 1)
        .about(ABOUT, "6.2.0", "Returns members within a circle or a box."),
    command("geosearchstore", -8, geosearchstore)
        .flags(WRITE | DENYOOM)
        .keys(1, 2, 1)
        .about(ABOUT, "6.2.0", "Stores members within a circle or a box."),
];

/// The place of two arguments.
fn place(args: Args<'_>, at: usize) -> Result<GeoPoint> {
    let number = |at: usize| float(args.at(at)).ok_or(Fault::NOT_A_FLOAT);
    let (lon, lat) = (number(at)?, number(at + 1)?);
    match lon.abs() <= LON_MAX && lat.abs() <= LAT_MAX {
        true => Ok(GeoPoint { lon, lat }),
        false => Err(Fault::new(format!(
            "ERR invalid longitude,latitude pair {lon:.6},{lat:.6}"
        ))),
    }
}

/// Metres in a unit.
fn unit(word: &[u8]) -> Result<f64> {
    match word.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(Fault::line(
            "ERR unsupported unit provided. please use M, KM, FT, MI",
        )),
    }
}

fn geoadd(execution: &mut Execution<'_>) -> Result<()> {
    let (key, args) = (execution.arg(1), execution.args);
    let (mut if_new, mut if_there, mut counts_changes, mut at) = (false, false, false, 2);
    while let Some(word) = args.get(at) {
        match word.to_ascii_lowercase().as_slice() {
            b"nx" => if_new = true,
            b"xx" => if_there = true,
            b"ch" => counts_changes = true,
            _ => break,
        }
        at += 1;
    }
    let rest = args.from(at);
    if rest.len() % 3 != 0 || if_new && if_there {
        return Err(Fault::SYNTAX);
    }
    let mut places = Vec::new();
    for index in (0..rest.len()).step_by(3) {
        places.push((place(rest, index)?, rest.at(index + 2)));
    }
    let mut set = SortedSet::open(execution, key)?;
    let (mut added, mut changed) = (0, 0);
    for (place, member) in places {
        let score = place.encode() as f64;
        let old = set.score(execution.work, member)?;
        if old.is_some() && if_new || old.is_none() && if_there || old == Some(score) {
            continue;
        }
        match old {
            Some(_) => changed += 1,
            None => added += 1,
        }
        set.set(execution.work, member, score)?;
    }
    let saved = set.save(execution, key)?;
    execution.tell(saved, EventClasses::SORTED_SET, "zadd", key);
    execution
        .reply
        .integer(added + if counts_changes { changed } else { 0 });
    Ok(())
}

/// The place of a member.
fn place_of(
    execution: &mut Execution<'_>,
    set: &SortedSet,
    member: &[u8],
) -> Result<Option<GeoPoint>> {
    let score = set.score(execution.work, member)?;
    Ok(score.map(|score| GeoPoint::decode(score as u64)))
}

fn geodist(execution: &mut Execution<'_>) -> Result<()> {
    let args = execution.args;
    let unit = match args.len() {
        4 => 1.0,
        5 => unit(args.at(4))?,
        _ => return Err(Fault::SYNTAX),
    };
    let set = SortedSet::look_up(execution, args.at(1))?;
    let one = place_of(execution, &set, args.at(2))?;
    let other = place_of(execution, &set, args.at(3))?;
    match one.zip(other) {
        Some((one, other)) => {
            let distance = one.distance(other) / unit;
            execution.reply.bulk(format!("{distance:.4}"));
        }
        None => execution.reply.null(),
    }
    Ok(())
}

fn geohash(execution: &mut Execution<'_>) -> Result<()> {
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let members = execution.args.from(2);
    execution.reply.array(members.len());
    for member in members.iter() {
        let place = place_of(execution, &set, member)?;
        execution.reply.bulk_or_null(place.map(GeoPoint::letters));
    }
    Ok(())
}

fn geopos(execution: &mut Execution<'_>) -> Result<()> {
    let set = SortedSet::look_up(execution, execution.arg(1))?;
    let members = execution.args.from(2);
    execution.reply.array(members.len());
    for member in members.iter() {
        match place_of(execution, &set, member)? {
            Some(place) => reply_place(execution, place),
            None => execution.reply.null_array(),
        }
    }
    Ok(())
}

/// Longitude and latitude with 17 decimals, without zeros at the end.
fn reply_place(execution: &mut Execution<'_>, place: GeoPoint) {
    execution.reply.array(2);
    for number in [place.lon, place.lat] {
        let text = format!("{number:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        execution.reply.bulk(text);
    }
}

/// What is searched, and how it is answered.
#[derive(Debug, Default)]
struct Search<'a> {
    centre: Option<GeoPoint>,
    member: Option<&'a [u8]>,
    shape: Option<GeoShape>,
    unit: f64,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    count: Option<usize>,
    takes_any: bool,
    /// From the nearest on, or from the farthest.
    order: Option<bool>,
    target: Option<&'a [u8]>,
    stores_distance: bool,
}

/// Which command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Radius,
    RadiusReadOnly,
    Search,
    SearchStore,
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Form::Search | Form::SearchStore)
    }
}

fn length(args: Args<'_>, at: usize, what: &str) -> Result<f64> {
    let number =
        float(args.at(at)).ok_or_else(|| Fault::new(format!("ERR need numeric {what}")))?;
    match number < 0.0 {
        true => Err(Fault::new(format!("ERR {what} cannot be negative"))),
        false => Ok(number),
    }
}

/// Reads options from `at` on.
fn parse<'a>(args: Args<'a>, mut at: usize, form: Form, search: &mut Search<'a>) -> Result<()> {
    let command = String::from_utf8_lossy(args.at(0)).to_ascii_lowercase();
    while let Some(word) = args.get(at) {
        let more = args.len() - at - 1;
        match word.to_ascii_lowercase().as_slice() {
            b"withdist" => search.with_distance = true,
            b"withhash" => search.with_hash = true,
            b"withcoord" => search.with_place = true,
            b"any" => search.takes_any = true,
            b"asc" => search.order = Some(true),
            b"desc" => search.order = Some(false),
            b"count" if more > 0 => {
                let count = parse_integer(args.at(at + 1))?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                let count = count.ok_or(Fault::line("ERR COUNT must be > 0"))?;
                search.count = Some(count);
                at += 1;
            }
            b"store" | b"storedist" if more > 0 && form == Form::Radius => {
                search.target = Some(args.at(at + 1));
                search.stores_distance = word.len() > 5;
                at += 1;
            }
            b"storedist" if form == Form::SearchStore => search.stores_distance = true,
            b"frommember" if more > 0 && form.is_search() && search.centre.is_none() => {
                search.member = Some(args.at(at + 1));
                at += 1;
            }
            b"fromlonlat" if more > 1 && form.is_search() && search.member.is_none() => {
                search.centre = Some(place(args, at + 1)?);
                at += 2;
            }
            b"byradius" if more > 1 && form.is_search() && search.shape.is_none() => {
                search.unit = unit(args.at(at + 2))?;
                let radius = length(args, at + 1, "radius")? * search.unit;
                search.shape = Some(GeoShape::Circle(radius));
                at += 2;
            }
            b"bybox" if more > 2 && form.is_search() && search.shape.is_none() => {
                search.unit = unit(args.at(at + 3))?;
                let side = |at: usize, what: &str| -> Result<f64> {
                    let number = float(args.at(at))
                        .ok_or_else(|| Fault::new(format!("ERR need numeric {what}")))?;
                    match number < 0.0 {
                        true => Err(Fault::line("ERR height or width cannot be negative")),
                        false => Ok(number),
                    }
                };
                let (width, height) = (side(at + 1, "width")?, side(at + 2, "height")?);
                let unit = search.unit;
                search.shape = Some(GeoShape::Box(width * unit, height * unit));
                at += 3;
            }
            _ => return Err(Fault::SYNTAX),
        }
        at += 1;
    }
    let shows = search.with_distance || search.with_hash || search.with_place;
    if search.target.is_some() && shows {
        let what = match form {
            Form::SearchStore => "GEOSEARCHSTORE",
            _ => "STORE option in GEORADIUS",
        };
        return Err(Fault::new(format!(
            "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
        )));
    }
    if form.is_search() && search.centre.is_none() && search.member.is_none() {
        return Err(Fault::new(format!(
            "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {command}"
        )));
    }
    if form.is_search() && search.shape.is_none() {
        return Err(Fault::new(format!(
            "ERR exactly one of BYRADIUS and BYBOX can be specified for {command}"
        )));
    }
    if search.takes_any && search.count.is_none() {
        return Err(Fault::line("ERR the ANY argument requires COUNT argument"));
    }
    Ok(())
}

/// A place that was found.
#[derive(Debug)]
struct Found {
    member: Vec<u8>,
    score: f64,
    place: GeoPoint,
    distance: f64,
}

/// Searches the set of a key.
fn find(execution: &mut Execution<'_>, key: &[u8], search: &Search<'_>) -> Result<Vec<Found>> {
    let set = SortedSet::look_up(execution, key)?;
    if set.count() == 0 {
        return Ok(Vec::new());
    }
    let centre = match search.member {
        Some(member) => place_of(execution, &set, member)?
            .ok_or(Fault::line("ERR could not decode requested zset member"))?,
        None => search.centre.unwrap_or(GeoPoint { lon: 0.0, lat: 0.0 }),
    };
    let shape = search.shape.unwrap_or(GeoShape::Circle(0.0));
    let enough = match search.takes_any {
        true => search.count.unwrap_or(usize::MAX),
        false => usize::MAX,
    };
    let mut found = Vec::new();
    for (from, to) in shape.cover(centre) {
        let range =
            SortedSetRange::Scores(Bound::Included(from as f64), Bound::Excluded(to as f64));
        set.visit(execution.work, &range, false, |member, score| {
            let place = GeoPoint::decode(score as u64);
            if let Some(distance) = shape.distance(centre, place) {
                found.push(Found {
                    member: member.to_vec(),
                    score,
                    place,
                    distance,
                });
            }
            found.len() < enough
        })?;
        if found.len() >= enough {
            break;
        }
    }
    // The first of all are the nearest, unless any will do.
    let order = match search.count {
        Some(_) if !search.takes_any => search.order.or(Some(true)),
        _ => search.order,
    };
    if let Some(is_ascending) = order {
        found.sort_by(|one, other| {
            let order = one.distance.total_cmp(&other.distance);
            if is_ascending { order } else { order.reverse() }
        });
    }
    found.truncate(search.count.unwrap_or(usize::MAX));
    Ok(found)
}

fn answer(execution: &mut Execution<'_>, key: &[u8], search: &Search<'_>) -> Result<()> {
    let found = find(execution, key, search)?;
    if let Some(target) = search.target {
        let scored = |found: &Found| -> ScoredMember {
            let score = match search.stores_distance {
                true => found.distance / search.unit,
                false => found.score,
            };
            (found.member.clone(), score)
        };
        let members: Vec<ScoredMember> = found.iter().map(scored).collect();
        store(execution, target, &members, "geosearchstore")?;
        execution.reply.count(members.len());
        return Ok(());
    }
    let extras = [search.with_distance, search.with_hash, search.with_place];
    let extras = extras.iter().filter(|with| **with).count();
    execution.reply.array(found.len());
    for found in found {
        if extras > 0 {
            execution.reply.array(extras + 1);
        }
        execution.reply.bulk(&found.member);
        if search.with_distance {
            let distance = found.distance / search.unit;
            execution.reply.bulk(format!("{distance:.4}"));
        }
        if search.with_hash {
            execution.reply.integer(found.score as i64);
        }
        if search.with_place {
            reply_place(execution, found.place);
        }
    }
    Ok(())
}

fn geosearch(execution: &mut Execution<'_>) -> Result<()> {
    let mut search = Search::default();
    parse(execution.args, 2, Form::Search, &mut search)?;
    answer(execution, execution.arg(1), &search)
}

fn geosearchstore(execution: &mut Execution<'_>) -> Result<()> {
    let mut search = Search {
        target: Some(execution.arg(1)),
        ..Search::default()
    };
    parse(execution.args, 3, Form::SearchStore, &mut search)?;
    answer(execution, execution.arg(2), &search)
}

/// `GEORADIUS`: the radius stands at `at`, behind a place or a member.
fn radius(execution: &mut Execution<'_>, is_member: bool, form: Form) -> Result<()> {
    let args = execution.args;
    let mut search = Search::default();
    let at = match is_member {
        true => {
            search.member = Some(args.at(2));
            3
        }
        false => {
            search.centre = Some(place(args, 2)?);
            4
        }
    };
    search.unit = unit(args.at(at + 1))?;
    search.shape = Some(GeoShape::Circle(length(args, at, "radius")? * search.unit));
    parse(args, at + 2, form, &mut search)?;
    answer(execution, args.at(1), &search)
}

fn georadius(execution: &mut Execution<'_>) -> Result<()> {
    radius(execution, false, Form::Radius)
}

fn georadius_ro(execution: &mut Execution<'_>) -> Result<()> {
    radius(execution, false, Form::RadiusReadOnly)
}

fn georadiusbymember(execution: &mut Execution<'_>) -> Result<()> {
    radius(execution, true, Form::Radius)
}

fn georadiusbymember_ro(execution: &mut Execution<'_>) -> Result<()> {
    radius(execution, true, Form::RadiusReadOnly)
}
