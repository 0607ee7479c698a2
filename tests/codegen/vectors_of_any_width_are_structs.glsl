struct lg_tuple0 { float r0; float r1; float r2; float r3; float r4; };
lg_tuple0 squares(lg_tuple0 p0)
{
    lg_tuple0 v0 = lg_tuple0((p0.r0 * p0.r0), (p0.r1 * p0.r1), (p0.r2 * p0.r2), (p0.r3 * p0.r3), (p0.r4 * p0.r4));
    return lg_tuple0((v0.r0 + 216.0f), (v0.r1 + 216.0f), (v0.r2 + 216.0f), (v0.r3 + 216.0f), (v0.r4 + 216.0f));
}
