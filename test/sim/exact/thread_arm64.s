#include "textflag.h"

// func thread() unsafe.Pointer
TEXT ·thread(SB), NOSPLIT, $0-8
	MOVD 48(g), R0
	MOVD R0, ret+0(FP)
	RET
