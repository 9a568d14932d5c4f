//go:build avo

// Simd writes the assembly of package internal/simd with avo, which allocates registers and
// checks the forms of instructions. Run it with go generate there.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	part := flag.String("part", "", "the file to write: product, vector or blocks")
	flag.Parse() // with the flags of avo: -out, -stubs, -pkg
	if *part == "blocks" {
		emitBlocks()
		Generate()
		return
	}
	for _, v := range []isa{avx2, avx512} {
		switch *part {
		case "product":
			emitProduct(v)
		case "vector":
			vector(v)
		default:
			fmt.Fprintf(os.Stderr, "simd: -part %q, want product, vector or blocks\n", *part)
			os.Exit(2)
		}
	}
	if *part == "product" {
		multiplyPairs()
		narrowRow()
		splitRow()
		packPairs()
	}
	Generate()
}
