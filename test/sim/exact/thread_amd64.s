#include "textflag.h"

// func thread() unsafe.Pointer
TEXT ·thread(SB), NOSPLIT, $0-8
	MOVQ (TLS), AX
	MOVQ 48(AX), AX
	MOVQ AX, ret+0(FP)
	RET
