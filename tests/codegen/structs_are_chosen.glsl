struct lg_tuple0 { float r0; int r1; };
struct lg_tuple1 { lg_tuple0 r0; lg_tuple0 r1; };
lg_tuple0 lg_select_lg_tuple0(lg_tuple0 second, lg_tuple0 first, bool condition) { if (condition) { return first; } return second; }
lg_tuple0 pair(float p0, int p1)
{
    float v0 = (p0 + 219.0f);
    lg_tuple0 v1 = lg_tuple0(v0, p1);
    lg_tuple0 v2 = lg_tuple0(p0, p1);
    lg_tuple1 v3 = lg_tuple1(v1, v2);
    return lg_select_lg_tuple0(v2, v1, p1 == 0);
}
