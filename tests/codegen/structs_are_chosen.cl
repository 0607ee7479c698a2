typedef struct { float r0; long r1; } lg_tuple0;
typedef struct { lg_tuple0 r0; lg_tuple0 r1; } lg_tuple1;
lg_tuple0 pair(float p0, long p1)
{
    const float v0 = (p0 + 219.0f);
    const lg_tuple0 v1 = (lg_tuple0){v0, p1};
    const lg_tuple0 v2 = (lg_tuple0){p0, p1};
    const lg_tuple1 v3 = (lg_tuple1){v1, v2};
    return (p1 == 0 ? v1 : v2);
}
