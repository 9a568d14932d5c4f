//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"go/constant"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// sharedConstants are sizes that launchers and kernels must agree on: an expression of the
// constants of a source, and what the launcher takes it for.
var sharedConstants = []struct {
	file, expression string
	value            int64
}{
	{"attention.h", "COLUMNS", attendColumns},
	{"attention.h", "QUERIES", attendQueries},
	{"attention.h", "32 * WARPS", attendThreads},
	{"attention_decode.cu", "STEP_WARPS", stepWarps},
	{"attention_decode.cu", "STAGES", stepStages},
	{"attention_decode.cu", "SLOTS", stepSlots},
	{"attention_grad_mma.cu", "PARTS", queryParts},
	{"attention_grad_mma.cu", "KEYS", attendColumns},
	{"attention_grad_mma.cu", "SCORES_PAD", gradScoresPad},
	{"attention_hopper.cu", "THREADS", hopperThreads},
	{"attention_hopper.cu", "TILE * CONSUMERS", hopperQueries},
	{"attention_hopper.cu", "ROW / 2", hopperColumns},
	{"attention_observe.cu", "PARTS", queryParts},
	{"attention_observe.cu", "ROWS", sweepQueries},
	{"attention_observe.cu", "KEYS", sweepEntries},
	{"attention_observe.cu", "TILE", scoreTile},
	{"attention_observe.cu", "ENTRIES", scoreEntries},
	{"attention_observe.cu", "32 * SCORE_WARPS", scoreThreads},
	{"attention_rounded.cu", "TILE", observeBF16Queries},
	{"attention_rounded.cu", "WARPS", observeBF16Warps},
	{"f16.cu", "PARTS", f16Parts},
	{"f16.cu", "SPAN", f16Span},
	{"few_blocks.cu", "COLUMNS", blockColumns},
	{"few_blocks.cu", "STAGES", blockStages},
	{"few_blocks.cu", "2 * TILE", maxBlockRows},
	{"few_norms.cu", "LOADS", decodeNormLoads},
	{"few_rows.cu", "WARPS", decodeLinearWarps},
	{"few_rows.cu", "COLUMNS", decodeLinearColumns},
	{"few_rows.cu", "CHUNK", decodeLinearChunk},
	{"map.h", "SPAN", mapSpan},
	{"merge.cu", "TILE", keyTile},
	{"merge.cu", "MERGE_WARPS", keyWarps},
	{"merge.cu", "32 * MERGE_WARPS", mergeThreads},
	{"sample.cu", "THREADS", drawThreads},
	{"sparse.cu", "MAX_DIM", maxHeadDim},
	{"thin.cu", "THIN_ROWS", splitKRows},
	{"thin.cu", "THIN_COLUMNS", splitKColumns},
	{"thin.cu", "THIN_DEPTH", splitKDepth},
	{"thin.cu", "THIN_RESULTS", SplitKResults},
	{"thin.cu", "UPDATE_COLUMNS", updateColumns},
	{"thin.cu", "UPDATE_THREADS", updateThreads},
	{"training.cu", "RANKS", lowRanks},
}

var (
	constantsLine = regexp.MustCompile(`(?m)^(?:const|constexpr) int ([^;]*);|^enum \{([^}]*)\}`)
	assigned      = regexp.MustCompile(`^\s*([A-Z_]+) = (.+)$`)
)

// constantsOf are the integer constants of a source, in order, evaluated as those of Go are.
func constantsOf(t *testing.T, file string) *types.Package {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the test binary runs without the sources: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	pkg := types.NewPackage("c", "c")
	for _, m := range constantsLine.FindAllStringSubmatch(string(text), -1) {
		for _, one := range strings.Split(m[1]+m[2], ",") {
			if a := assigned.FindStringSubmatch(one); a != nil {
				if v, err := types.Eval(token.NewFileSet(), pkg, token.NoPos, a[2]); err == nil {
					pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, a[1], types.Typ[types.UntypedInt], v.Value))
				}
			}
		}
	}
	return pkg
}

// TestCUDAConstantsAreThoseOfTheSources: what launchers say of tiles and blocks is what the
// kernels were compiled with.
func TestCUDAConstantsAreThoseOfTheSources(t *testing.T) {
	for _, c := range sharedConstants {
		v, err := types.Eval(token.NewFileSet(), constantsOf(t, c.file), token.NoPos, c.expression)
		if err != nil {
			t.Errorf("%s: %s: %v", c.file, c.expression, err)
		} else if n, ok := constant.Int64Val(v.Value); !ok || n != c.value {
			t.Errorf("%s: %s is %v, the launcher takes it for %d", c.file, c.expression, v.Value, c.value)
		}
	}
}
