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
// Sums, rows SI bytes apart: tiles 0 and 1 at DX, 2 and 3, the lower half, at CX.
#define LOAD0_DX       BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x04; BYTE $0x32
#define LOAD1_DX_64    BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x4C; BYTE $0x32; BYTE $0x40
#define LOAD2_CX       BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x14; BYTE $0x31
#define LOAD3_CX_64    BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x5C; BYTE $0x31; BYTE $0x40
#define STORE0_DX      BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x04; BYTE $0x32
#define STORE1_DX_64   BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x4C; BYTE $0x32; BYTE $0x40
#define STORE2_CX      BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x14; BYTE $0x31
#define STORE3_CX_64   BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x5C; BYTE $0x31; BYTE $0x40

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

// Where alpha is 1 and beta 0 or 1, sums begin with c and are stored to c; what is not a whole block of 32 rows and columns goes
// through memory of the stack. Else sums are scaled and added to c afterwards.
//
// func multiplyTiles(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int)
TEXT ·multiplyTiles(SB), 0, $4176-80
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

	// Whether sums are c's.
	XORQ DX, DX
	MOVL beta+56(FP), AX
	ADDL AX, AX // without its sign
	JZ   one
	CMPL AX, $0x7F000000
	JNE  scaled
	CMPL beta+56(FP), $0
	JLT  scaled
one:
	CMPL alpha+24(FP), $0x3F800000
	JNE  scaled
	INCQ DX
scaled:
	MOVQ DX, sums-8(SP)

rows:
	MOVQ DI, R15 // where the sums are stored
	CMPQ sums-8(SP), $0
	JEQ  zero
	CMPQ R8, $32
	JLT  part
	CMPQ width+8(FP), $32
	JLT  part
	MOVQ R12, R15
part:
	MOVL beta+56(FP), AX
	ADDL AX, AX
	JZ   zero
	CMPQ R15, R12
	JEQ  whole
	MOVQ  $32, CX
	CMPQ  R8, CX
	CMOVQLT R8, CX // rows that are there
	MOVQ  R12, AX
	MOVQ  DI, DX
copyIn:
	VMOVUPS.Z (AX), K1, Z4
	VMOVUPS.Z 64(AX), K2, Z5
	VMOVUPS Z4, (DX)
	VMOVUPS Z5, 64(DX)
	ADDQ R13, AX
	ADDQ $128, DX
	DECQ CX
	JNZ  copyIn
	JMP  begin
whole:
	MOVQ R13, SI
begin:
	MOVQ R15, DX
	MOVQ SI, CX
	SHLQ $4, CX
	ADDQ DX, CX
	LOAD0_DX
	LOAD1_DX_64
	LOAD2_CX
	LOAD3_CX_64
	MOVQ $128, SI
	JMP  multiply
zero:
	TILEZERO(0xC0)
	TILEZERO(0xC8)
	TILEZERO(0xD0)
	TILEZERO(0xD8)

multiply:
	MOVQ R9, AX
	MOVQ BX, CX
	SHLQ $4, CX
	ADDQ AX, CX
	MOVQ panel+48(FP), DX
	MOVQ R10, R11
	CMPQ R8, $16
	JLE  few

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
	JMP  end

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

end:
	CMPQ R15, R12
	CMOVQEQ R13, SI
	MOVQ R15, DX
	MOVQ SI, CX
	SHLQ $4, CX
	ADDQ DX, CX
	STORE0_DX
	STORE1_DX_64
	CMPQ R8, $16
	JLE  stored
	STORE2_CX
	STORE3_CX_64
stored:
	MOVQ $128, SI
	CMPQ R15, R12
	JNE  copy
	MOVQ R13, AX
	SHLQ $5, AX
	ADDQ AX, R12
	JMP  next

copy:
	MOVQ  $32, CX
	CMPQ  R8, CX
	CMOVQLT R8, CX // rows that are there
	MOVQ  DI, DX
	CMPQ  sums-8(SP), $0
	JEQ   scale
copyOut:
	VMOVUPS (DX), Z0
	VMOVUPS 64(DX), Z1
	VMOVUPS Z0, K1, (R12)
	VMOVUPS Z1, K2, 64(R12)
	ADDQ $128, DX
	ADDQ R13, R12
	DECQ CX
	JNZ  copyOut
	JMP  next

scale:
	MOVL  beta+56(FP), AX
	ADDL  AX, AX
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
