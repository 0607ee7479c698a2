struct lg_tuple0 { r0: f32, r1: i32 }
struct lg_tuple1 { r0: lg_tuple0, r1: lg_tuple0 }
fn lg_select_lg_tuple0(second: lg_tuple0, first: lg_tuple0, condition: bool) -> lg_tuple0 { if (condition) { return first; } return second; }
fn pair(p0: f32, p1: i32) -> lg_tuple0
{
    let v0: f32 = (p0 + 219.0f);
    let v1: lg_tuple0 = lg_tuple0(v0, p1);
    let v2: lg_tuple0 = lg_tuple0(p0, p1);
    let v3: lg_tuple1 = lg_tuple1(v1, v2);
    return lg_select_lg_tuple0(v2, v1, p1 == 0);
}
