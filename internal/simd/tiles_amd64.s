#include "textflag.h"

// Go's assembler does not know the instructions of AMX: they are written as bytes. Tiles 0 to 3 are
// sums of 16 rows and 16 columns, 4 and 5 rows of a, 6 and 7 the panel's columns.
#define LDTILECFG_AX   BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0x00
#define TILERELEASE    BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0xC0
#define TILEZERO(rm)   BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x49; BYTE $rm
// Rows of a, BX bytes apart.
#define LOAD4_AX       BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x24; BYTE $0x18
#define LOAD5_CX       BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x2C; BYTE $0x19
// Rows of the panel, SI bytes apart.
#define LOAD6_DX       BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x34; BYTE $0x32
#define LOAD7_DX_64    BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x7C; BYTE $0x32; BYTE $0x40
// TDPBF16PS: tiles 0 and 1 are products of tile 4, tiles 2 and 3 of tile 5.
#define DOT_0_4_6      BYTE $0xC4; BYTE $0xE2; BYTE $0x4A; BYTE $0x5C; BYTE $0xC4
#define DOT_1_4_7      BYTE $0xC4; BYTE $0xE2; BYTE $0x42; BYTE $0x5C; BYTE $0xCC
#define DOT_2_5_6      BYTE $0xC4; BYTE $0xE2; BYTE $0x4A; BYTE $0x5C; BYTE $0xD5
#define DOT_3_5_7      BYTE $0xC4; BYTE $0xE2; BYTE $0x42; BYTE $0x5C; BYTE $0xDD
// Sums to DI, rows SI bytes apart: tiles 2 and 3 are the lower half.
#define STORE0_DI      BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x04; BYTE $0x37
#define STORE1_DI_64   BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x4C; BYTE $0x37; BYTE $0x40
#define STORE2_DI_2048 BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x94; BYTE $0x37; LONG $0x00000800
#define STORE3_DI_2112 BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x9C; BYTE $0x37; LONG $0x00000840

// Palette 1; eight tiles of 16 rows of 64 bytes.
DATA tiles<>+0(SB)/8, $1
DATA tiles<>+8(SB)/8, $0
DATA tiles<>+16(SB)/8, $0x0040004000400040
DATA tiles<>+24(SB)/8, $0x0040004000400040
DATA tiles<>+32(SB)/8, $0
DATA tiles<>+40(SB)/8, $0
DATA tiles<>+48(SB)/8, $0x1010101010101010
DATA tiles<>+56(SB)/8, $0
GLOBL tiles<>(SB), RODATA|NOPTR, $64

// func multiplyTiles(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int)
TEXT ·multiplyTiles(SB), 0, $4160-80
	LEAQ tiles<>(SB), AX
	LDTILECFG_AX
	LEAQ 63(SP), DI
	ANDQ $-64, DI
	MOVQ $128, SI
	MOVQ m+0(FP), R8
	MOVQ a+32(FP), R9
	MOVQ lda+40(FP), BX
	SHLQ $2, BX
	MOVQ pairs+16(FP), R10
	ADDQ $15, R10
	SHRQ $4, R10
	MOVQ c+64(FP), R12
	MOVQ ldc+72(FP), R13
	SHLQ $2, R13

	// Masks of the columns that are there.
	MOVQ   width+8(FP), CX
	MOVL   $-1, AX
	BZHIL  CX, AX, AX
	KMOVW  AX, K1
	SHRL   $16, AX
	KMOVW  AX, K2
	VBROADCASTSS alpha+24(FP), Z2
	VBROADCASTSS beta+56(FP), Z3

rows:
	MOVQ R9, AX
	MOVQ BX, CX
	SHLQ $4, CX
	ADDQ AX, CX
	MOVQ panel+48(FP), DX
	MOVQ R10, R11
	TILEZERO(0xC0)
	TILEZERO(0xC8)
	CMPQ R8, $16
	JLE  few
	TILEZERO(0xD0)
	TILEZERO(0xD8)

depth:
	LOAD4_AX
	LOAD6_DX
	DOT_0_4_6
	LOAD7_DX_64
	DOT_1_4_7
	LOAD5_CX
	DOT_2_5_6
	DOT_3_5_7
	ADDQ $64, AX
	ADDQ $64, CX
	ADDQ $2048, DX
	DECQ R11
	JNZ  depth
	STORE2_DI_2048
	STORE3_DI_2112
	JMP  sums

few:
	LOAD4_AX
	LOAD6_DX
	DOT_0_4_6
	LOAD7_DX_64
	DOT_1_4_7
	ADDQ $64, AX
	ADDQ $2048, DX
	DECQ R11
	JNZ  few

sums:
	STORE0_DI
	STORE1_DI_64
	MOVQ  $32, CX
	CMPQ  R8, CX
	CMOVQLT R8, CX // rows that are there
	MOVQ  DI, DX
	MOVL  beta+56(FP), AX
	ADDL  AX, AX    // without its sign
	JZ    store

add:
	VMULPS (DX), Z2, Z0
	VMULPS 64(DX), Z2, Z1
	VMOVUPS.Z (R12), K1, Z4
	VMOVUPS.Z 64(R12), K2, Z5
	VFMADD231PS Z3, Z4, Z0
	VFMADD231PS Z3, Z5, Z1
	VMOVUPS Z0, K1, (R12)
	VMOVUPS Z1, K2, 64(R12)
	ADDQ $128, DX
	ADDQ R13, R12
	DECQ CX
	JNZ  add
	JMP  next

store:
	VMULPS (DX), Z2, Z0
	VMULPS 64(DX), Z2, Z1
	VMOVUPS Z0, K1, (R12)
	VMOVUPS Z1, K2, 64(R12)
	ADDQ $128, DX
	ADDQ R13, R12
	DECQ CX
	JNZ  store

next:
	MOVQ BX, AX
	SHLQ $5, AX
	ADDQ AX, R9
	SUBQ $32, R8
	JGT  rows
	TILERELEASE
	VZEROUPPER
	RET
