//! Places on the earth as scores of a sorted set.
//!
//! # Idea
//! Longitude and latitude are halved 26 times each, and the bits of the halves that a place is in
//! stand in turn in a number of 52 bits, which a score holds exactly. Places that have their first
//! bits in common are near each other, so a cell of the grid is a range of scores. A search covers
//! the box around its area with up to nine cells of the smallest size that does, and checks each
//! place in them.
//!
//! Latitudes end at 85.05112878 degrees, as in EPSG:3857. The earth is a sphere.

#![expect(
    clippy::cast_possible_truncation,
    reason = "coordinates were clamped, and scores are whole numbers below 2^52"
)]

use std::f64::consts::{FRAC_PI_2, PI};

/// The greatest longitude.
pub(crate) const LON_MAX: f64 = 180.0;
/// The greatest latitude.
pub(crate) const LAT_MAX: f64 = 85.051_128_78;

/// The radius of the earth, in metres.
const RADIUS: f64 = 6_372_797.560_856;

/// Halves of each coordinate.
const BITS: u32 = 26;

/// The most cells of a cover in each direction.
const CELLS: u64 = 3;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GeoPoint {
    /// Its longitude.
    pub(crate) lon: f64,
    /// Its latitude.
    pub(crate) lat: f64,
}

/// The shape of a search, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GeoShape {
    /// A circle of a radius.
    Circle(f64),
    /// A box of a width and a height.
    Box(f64, f64),
}

/// The number of the cell among 2^26 that a coordinate is in.
fn cell(value: f64, max: f64) -> u64 {
    let cells = f64::from(1_u32 << BITS);
    let at = (value + max) / (2.0 * max) * cells;
    at.clamp(0.0, cells - 1.0) as u64
}

/// The middle of a cell.
fn middle(cell: u64, max: f64) -> f64 {
    let cells = f64::from(1_u32 << BITS);
    // As Redis has it to the last digit: the mean of its edges.
    let edge = |cell: f64| -max + cell * 1.0 / cells * (2.0 * max);
    let value = (edge(cell as f64) + edge(cell as f64 + 1.0)) / 2.0;
    value.clamp(-max, max)
}

/// The lowest 26 bits, with a zero before each.
fn spread(number: u64) -> u64 {
    (0..BITS).fold(0, |all, bit| all | (number >> bit & 1) << (2 * bit))
}

/// Every other bit.
fn gather(number: u64) -> u64 {
    (0..BITS).fold(0, |all, bit| all | (number >> (2 * bit) & 1) << bit)
}

impl GeoPoint {
    /// The place's number.
    pub(crate) fn encode(self) -> u64 {
        spread(cell(self.lat, LAT_MAX)) | spread(cell(self.lon, LON_MAX)) << 1
    }

    /// The middle of the cell of that number.
    pub(crate) fn decode(number: u64) -> GeoPoint {
        GeoPoint {
            lon: middle(gather(number >> 1), LON_MAX),
            lat: middle(gather(number), LAT_MAX),
        }
    }

    /// The distance to another place, in metres, by the formula of haversines.
    pub(crate) fn distance(self, other: GeoPoint) -> f64 {
        let (lat, other_lat) = (self.lat.to_radians(), other.lat.to_radians());
        let by_lon = ((other.lon.to_radians() - self.lon.to_radians()) / 2.0).sin();
        if by_lon == 0.0 {
            return RADIUS * (other_lat - lat).abs();
        }
        let by_lat = ((other_lat - lat) / 2.0).sin();
        let square = by_lat * by_lat + lat.cos() * other_lat.cos() * by_lon * by_lon;
        2.0 * RADIUS * square.sqrt().asin()
    }

    /// The string of eleven letters that geohash.org has for the place.
    pub(crate) fn letters(self) -> String {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        // There latitudes end at the pole.
        let number = spread(cell(self.lat, 90.0)) | spread(cell(self.lon, LON_MAX)) << 1;
        (0..11)
            .map(|index| {
                // The last letter would need more bits than there are.
                let place = match index {
                    10 => 0,
                    _ => number >> (2 * BITS - 5 * (index + 1)) & 31,
                };
                char::from(ALPHABET[place as usize])
            })
            .collect()
    }
}

impl GeoShape {
    /// The distance of a place from the middle, if it is inside.
    pub(crate) fn distance(self, centre: GeoPoint, place: GeoPoint) -> Option<f64> {
        match self {
            GeoShape::Circle(radius) => {
                let distance = centre.distance(place);
                (distance <= radius).then_some(distance)
            }
            GeoShape::Box(width, height) => {
                let by_lat = RADIUS * (place.lat.to_radians() - centre.lat.to_radians()).abs();
                let beside = GeoPoint {
                    lon: centre.lon,
                    lat: place.lat,
                };
                let is_inside = by_lat <= height / 2.0 && place.distance(beside) <= width / 2.0;
                is_inside.then(|| centre.distance(place))
            }
        }
    }

    /// Ranges of numbers that all places inside are in: the first number of each, and the first
    /// behind it. That with the middle comes first, the others in their order.
    pub(crate) fn cover(self, centre: GeoPoint) -> Vec<(u64, u64)> {
        let (half_width, half_height) = match self {
            GeoShape::Circle(radius) => (radius, radius),
            GeoShape::Box(width, height) => (width / 2.0, height / 2.0),
        };
        // A little more than the shape, since what follows is rounded.
        let up = (half_height / RADIUS).to_degrees() * 1.000_001 + 0.000_001;
        let (south, north) = (centre.lat - up, centre.lat + up);
        let narrowest = south.abs().max(north.abs());
        let lats = (cell(south, LAT_MAX), cell(north, LAT_MAX));
        let sine = match half_width / RADIUS {
            angle if angle >= FRAC_PI_2 || half_width >= PI * RADIUS => 1.0,
            angle => angle.sin(),
        };
        let least_cosine = narrowest.min(90.0).to_radians().cos();
        let across = match sine >= least_cosine {
            true => 360.0,
            false => (sine / least_cosine).asin().to_degrees() * 2.000_002 + 0.000_001,
        };
        let (west, east) = (centre.lon - across, centre.lon + across);
        let all = [
            (west, east),
            (west + 360.0, LON_MAX),
            (-LON_MAX, east - 360.0),
        ];
        let mut ranges = Vec::new();
        for (west, east) in all {
            if west <= LON_MAX && east >= -LON_MAX && west <= east {
                let lons = (cell(west, LON_MAX), cell(east, LON_MAX));
                cells(lats, lons, &mut ranges);
            }
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in ranges {
            match merged.last_mut() {
                // What overlaps is one range, so that no place is met twice.
                Some(last) if from < last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        let number = centre.encode();
        let of_centre = merged
            .iter()
            .position(|(from, to)| (*from..*to).contains(&number));
        if let Some(index) = of_centre {
            merged[..=index].rotate_right(1);
        }
        merged
    }
}

/// The ranges of the cells that cover those from one number to another in both directions.
fn cells(lats: (u64, u64), lons: (u64, u64), ranges: &mut Vec<(u64, u64)>) {
    let count = |(from, to): (u64, u64), shift: u32| (to >> shift) - (from >> shift) + 1;
    let shift = (0..=BITS)
        .find(|shift| count(lats, *shift) <= CELLS && count(lons, *shift) <= CELLS)
        .unwrap_or(BITS);
    for lat in lats.0 >> shift..=lats.1 >> shift {
        for lon in lons.0 >> shift..=lons.1 >> shift {
            let from = (spread(lat) | spread(lon) << 1) << (2 * shift);
            ranges.push((from, from + (1 << (2 * shift))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(lon: f64, lat: f64) -> GeoPoint {
        GeoPoint { lon, lat }
    }

    #[test]
    fn places_are_those_of_redis() {
        let palermo = place(13.361389, 38.115556);
        assert_eq!(palermo.encode(), 3_479_099_956_230_698);
        let decoded = GeoPoint::decode(palermo.encode());
        assert_eq!(format!("{}", decoded.lon), "13.361389338970184");
        assert_eq!(format!("{}", decoded.lat), "38.1155563954963");
        assert_eq!(decoded.letters(), "sqc8b49rny0");
        let catania = GeoPoint::decode(place(15.087269, 37.502669).encode());
        assert_eq!(format!("{:.4}", decoded.distance(catania)), "166274.1516");
    }

    proptest! {
        #[test]
        fn a_cover_has_all_places_inside_once(
            lon in -180.0..180.0_f64,
            lat in -85.0..85.0_f64,
            far in 0.0..7.3_f64,
            others in prop::collection::vec((-1.0..1.0_f64, -1.0..1.0_f64), 50),
            is_box: bool,
        ) {
            let centre = place(lon, lat);
            let size = 10_f64.powf(far);
            let shape = match is_box {
                true => GeoShape::Box(size, size / 2.0),
                false => GeoShape::Circle(size),
            };
            let cover = shape.cover(centre);
            for (by_lon, by_lat) in others {
                // Places of the size of the shape, or anywhere.
                let degrees = (size / RADIUS).to_degrees() * 3.0;
                let lon = (lon + by_lon * degrees.min(180.0) + 540.0) % 360.0 - 180.0;
                let lat = (lat + by_lat * degrees).clamp(-LAT_MAX, LAT_MAX);
                let number = place(lon, lat).encode();
                let found = GeoPoint::decode(number);
                let has = |range: &&(u64, u64)| (range.0..range.1).contains(&number);
                let count = cover.iter().filter(has).count();
                prop_assert!(count <= 1);
                if shape.distance(centre, found).is_some() {
                    prop_assert_eq!(count, 1, "{:?} {:?} {:?}", centre, shape, found);
                }
            }
        }
    }
}
