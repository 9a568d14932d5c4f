package kernels

import (
	"fmt"
	"slices"

	"glimpse/internal/simd"
	"glimpse/kernels/formats"
)

// KIVIKeys and KIVIValues are the keys and the values [entries, headDim] of one KV head in 4 bits, as KIVI has them
// (Liu et al., arXiv:2402.02750, §3.2, algorithm 1): the channels of keys, which differ in size, have a scale and a
// minimum each for 32 tokens; values have them for each token, in groups of 32 channels. The newest tokens, 32 to
// 63 of them, are BF16 until 32 leave together; the paper takes 128 at least, which would be most of a small budget.
// Scale, minimum and codes are a block of Q4_1.
//
// Tensors of these types lie on the host, their rows follow each other as they were written, and the views of one
// share what it stores. Rows that are kept of others keep their codes, as long as three quarters of the room in the
// groups are in use; then all are grouped anew, and keys are rounded once more.
const (
	KIVIKeys DType = 0xfe - iota
	KIVIValues
)

const (
	groupRows  = 32
	recentRows = 32
)

// MostRecent is the number of newest rows of a grouped tensor that there are at most in BF16.
const MostRecent = recentRows + groupRows

var groupBlock, _ = formats.All.Lookup("Q4_1")

// Grouped tells that rows are stored in groups, so that they are not blocks of their own.
func (d DType) Grouped() bool { return d == KIVIKeys || d == KIVIValues }

// OfValues is the type of the values where keys have type d.
func (d DType) OfValues() DType {
	if d == KIVIKeys {
		return KIVIValues
	}
	return d
}

// groups is what a grouped tensor and its views store.
type groups struct {
	dim, capacity int
	values        bool
	ends          []int    // the rows of group i are those from ends[i-1] to ends[i], in its first places
	blocks        []byte   // of a group: one for each channel of keys, or the channels of one token after the other
	recent        []uint16 // BF16, the rows after the groups
	mark          *mark    // that of MarkRows, as long as it holds
}

// mark is what AppendRows takes away from the rows that there were: what was BF16 and goes into groups.
type mark struct {
	rows, groups int
	recent       []uint16
}

func newGroups(d DType, capacity, dim int) *groups {
	if dim%groupBlock.Elems != 0 {
		panic(fmt.Sprintf("kernels: %d elements of a row of %s, want a multiple of %d", dim, d, groupBlock.Elems))
	}
	return &groups{dim: dim, capacity: capacity, values: d == KIVIValues}
}

// closed is how many of n rows are in groups where none was taken out.
func closed(n int) int { return max(0, n-recentRows) / groupRows * groupRows }

// groupedBytes is the memory of n rows.
func groupedBytes(n, dim int) int {
	return closed(n)/groupRows*groupBytes(dim) + 2*min(n, recentRows+groupRows)*dim
}

func groupBytes(dim int) int { return groupRows * dim / groupBlock.Elems * groupBlock.Bytes }

func (g *groups) groupBytes() int {
	return max(groupedBytes(g.capacity, g.dim), cap(g.blocks)+2*cap(g.recent))
}

func (g *groups) closedRows() int { return g.groupStart(len(g.ends)) }

func (g *groups) rowCount() int { return g.closedRows() + len(g.recent)/g.dim }

// group is the first row of a group, how many it has, and their blocks.
func (g *groups) group(i int) (from, n int, blocks []byte) {
	from = g.groupStart(i)
	size := groupBytes(g.dim)
	return from, g.ends[i] - from, g.blocks[i*size:][:size]
}

// addGroup adds a group, whose blocks it returns.
func (g *groups) addGroup(n int) []byte {
	size := groupBytes(g.dim)
	if len(g.blocks)+size > cap(g.blocks) {
		more := max(size, closed(g.capacity-g.closedRows())/groupRows*size)
		g.blocks = append(make([]byte, 0, len(g.blocks)+more), g.blocks...)
	}
	g.ends = append(g.ends, g.closedRows()+n)
	g.blocks = g.blocks[:len(g.blocks)+size]
	return g.blocks[len(g.blocks)-size:]
}

// append adds rows.
func (g *groups) append(rows []float32) {
	if most := min(g.capacity-g.closedRows(), recentRows+groupRows) * g.dim; cap(g.recent) < most {
		g.recent = append(make([]uint16, 0, most), g.recent...)
	}
	oldest := make([]float32, groupRows*g.dim)
	for ; len(rows) > 0; rows = rows[g.dim:] {
		n := len(g.recent)
		g.recent = slices.Grow(g.recent, g.dim)[:n+g.dim]
		simd.NarrowBF16(g.recent[n:], rows[:g.dim])
		if len(g.recent) == (recentRows+groupRows)*g.dim {
			simd.WidenBF16(oldest, g.recent[:groupRows*g.dim])
			g.quantiseGroup(g.addGroup(groupRows), oldest)
			g.recent = g.recent[:copy(g.recent, g.recent[groupRows*g.dim:])]
		}
	}
}

// quantiseGroup writes the blocks of a group of at most 32 rows.
func (g *groups) quantiseGroup(blocks []byte, rows []float32) {
	if g.values {
		groupBlock.Narrow(blocks, rows)
		return
	}
	var tokens [groupRows]float32
	for c := range g.dim {
		for r := range tokens {
			tokens[r] = rows[min(r, len(rows)/g.dim-1)*g.dim+c]
		}
		groupBlock.Narrow(blocks[c*groupBlock.Bytes:][:groupBlock.Bytes], tokens[:])
	}
}

// readRows sets dst to the rows from one on.
func (g *groups) readRows(dst []float32, from int) {
	to, closed := from+len(dst)/g.dim, g.closedRows()
	var tokens [groupRows]float32
	for i := g.first(from); i < len(g.ends) && g.groupStart(i) < to; i++ {
		start, n, blocks := g.group(i)
		low, high := max(from, start), min(to, start+n)
		part := dst[(low-from)*g.dim : (high-from)*g.dim]
		if g.values {
			size := g.dim / groupBlock.Elems * groupBlock.Bytes
			groupBlock.Decode(part, blocks[(low-start)*size:(high-start)*size])
			continue
		}
		for c := range g.dim {
			groupBlock.Decode(tokens[:], blocks[c*groupBlock.Bytes:][:groupBlock.Bytes])
			for r, x := range tokens[low-start : high-start] {
				part[r*g.dim+c] = x
			}
		}
	}
	if low := max(from, closed); low < to {
		simd.WidenBF16(dst[(low-from)*g.dim:], g.recent[(low-closed)*g.dim:(to-closed)*g.dim])
	}
}

// readColumns is read of keys into dst [dim, ld], where blocks have them.
func (g *groups) readColumns(dst []float32, ld, from, n int) {
	to, closed := from+n, g.closedRows()
	const channels = 8 // that are widened together
	var wide [channels * groupRows]float32
	for i := g.first(from); i < len(g.ends) && g.groupStart(i) < to; i++ {
		start, n, blocks := g.group(i)
		low, high := max(from, start), min(to, start+n)
		for c := 0; c < g.dim; c += channels { // dim is a multiple
			groupBlock.Decode(wide[:], blocks[c*groupBlock.Bytes:][:channels*groupBlock.Bytes])
			for j := range channels {
				copy(dst[(c+j)*ld+low-from:][:high-low], wide[j*groupRows+low-start:])
			}
		}
	}
	for r := max(from, closed); r < to; r++ {
		for c, b := range g.recent[(r-closed)*g.dim:][:g.dim] {
			dst[c*ld+r-from] = formats.BF16ToF32(b)
		}
	}
}

// first is the first group that ends after a row.
func (g *groups) first(row int) int {
	i, _ := slices.BinarySearch(g.ends, row+1)
	return i
}

func (g *groups) groupStart(i int) int {
	if i == 0 {
		return 0
	}
	return g.ends[i-1]
}

// writeRows sets rows that are there, and adds those that follow them. The others of a group of keys are rounded with
// what is written to it.
func (g *groups) writeRows(from int, rows []float32) {
	if from < g.rowCount() {
		g.mark = nil
	}
	for ; len(rows) > 0 && from < g.rowCount(); rows, from = rows[g.dim:], from+1 {
		i := g.first(from)
		if i == len(g.ends) {
			simd.NarrowBF16(g.recent[(from-g.closedRows())*g.dim:][:g.dim], rows[:g.dim])
			continue
		}
		start, n, blocks := g.group(i)
		whole := make([]float32, n*g.dim)
		g.readRows(whole, start)
		copy(whole[(from-start)*g.dim:], rows[:g.dim])
		g.quantiseGroup(blocks, whole)
	}
	if len(rows) > 0 {
		g.mustFollow(from)
		g.append(rows)
	}
}

func (g *groups) mustFollow(row int) {
	if n := g.rowCount(); row > n {
		panic(fmt.Sprintf("kernels: row %d after %d rows in groups", row, n))
	}
}

// cutRows leaves the first n rows.
func (g *groups) cutRows(n int) {
	if g.mustFollow(n); n < g.rowCount() {
		capacity := g.capacity
		*g = *g.kept(Ascending(n), false)
		g.capacity = capacity
	}
}

// keptMark is the mark where the first rows go, whole groups of them.
func (g *groups) keptMark(rows []int32) *mark {
	if g.mark == nil || len(rows) == 0 || int(rows[0]) != g.rowCount()-len(rows) {
		return nil
	}
	gone := int(rows[0])
	i := g.first(gone)
	if g.groupStart(i) != gone || i > g.mark.groups {
		return nil
	}
	return &mark{g.mark.rows - gone, g.mark.groups - i, g.mark.recent}
}

// kept are ascending rows, grouped anew where that is allowed and worth it.
func (g *groups) kept(rows []int32, anew bool) *groups {
	out := &groups{dim: g.dim, capacity: len(rows), values: g.values, mark: g.keptMark(rows)}
	inGroups, _ := slices.BinarySearch(rows, int32(g.closedRows()))
	recent := rows[inGroups:]
	rows = rows[:inGroups]
	some := 0 // groups with rows that are kept
	for left := rows; len(left) > 0; some++ {
		n, _ := slices.BinarySearch(left, int32(g.ends[g.first(int(left[0]))]))
		left = left[n:]
	}
	out.blocks = make([]byte, 0, some*groupBytes(g.dim))
	if anew && 4*len(rows) < 3*groupRows*some {
		out.blocks = make([]byte, 0, (len(rows)+groupRows-1)/groupRows*groupBytes(g.dim))
		for part := range slices.Chunk(rows, groupRows) {
			wide := make([]float32, len(part)*g.dim)
			for i, r := range part {
				g.readRows(wide[i*g.dim:][:g.dim], int(r))
			}
			out.quantiseGroup(out.addGroup(len(part)), wide)
		}
		rows, out.mark = nil, nil
	}
	for len(rows) > 0 {
		start, all, from := g.group(g.first(int(rows[0])))
		n, _ := slices.BinarySearch(rows, int32(start+all))
		to := out.addGroup(n)
		if n == all {
			copy(to, from)
		} else {
			g.pick(to, from, rows[:n], start)
		}
		rows = rows[n:]
	}
	out.recent = make([]uint16, 0, len(recent)*g.dim)
	for _, r := range recent {
		out.recent = append(out.recent, g.recent[(int(r)-g.closedRows())*g.dim:][:g.dim]...)
	}
	return out
}

// pick moves the codes of rows of a group to its first places.
func (g *groups) pick(to, from []byte, rows []int32, start int) {
	size := g.dim / groupBlock.Elems * groupBlock.Bytes
	for i, r := range rows {
		if at := int(r) - start; g.values {
			copy(to[i*size:][:size], from[at*size:][:size])
			continue
		}
		for c := 0; c < len(to); c += groupBlock.Bytes {
			const codes = 4 // after scale and minimum
			if i == 0 {
				copy(to[c:][:codes], from[c:][:codes])
			}
			at := int(r) - start
			code := from[c+codes+at%16] >> (at / 16 * 4) & 15
			low := &to[c+codes+i%16]
			*low = *low&^(15<<(i/16*4)) | code<<(i/16*4)
		}
	}
}

// MarkRows remembers how the rows in groups lie, so that CutRows to as many leaves them as they are now. Of tensors that are only
// counted both do nothing.
func (t *Tensor) MarkRows() {
	g := t.groups
	if g == nil {
		return
	}
	g.mark = &mark{g.rowCount(), len(g.ends), slices.Clone(g.recent)}
}

// RecentRows is the number of rows behind those in groups, which are BF16; 0 of tensors of other types.
func (t *Tensor) RecentRows() int {
	if t.groups == nil {
		return 0
	}
	return len(t.groups.recent) / t.groups.dim
}

// CutRows leaves the first n rows in groups: as MarkRows has found them if there were as many, and nothing but rows after them has
// been written since; else those that AppendRows has put in groups stay there.
func (t *Tensor) CutRows(n int) {
	g := t.groups
	if g == nil {
		return
	}
	if m := g.mark; m != nil && m.rows == n {
		g.ends, g.blocks = g.ends[:m.groups], g.blocks[:m.groups*groupBytes(g.dim)]
		g.recent = append(g.recent[:0], m.recent...)
		return
	}
	g.cutRows(n)
}

// AppendRows writes rows [n, dim] to a view that begins where rows were written before, or earlier: those
// that there are from there on are replaced.
func (t *Tensor) AppendRows(rows []float32) {
	t.groups.cutRows(t.offset)
	t.groups.append(rows)
}

// KeepRows makes all that t's groups store the given ascending rows of from, which may have the same groups; as they
// are, or anew grouped where that is worth it.
func (t *Tensor) KeepRows(from *Tensor, ids []int32, anew bool) {
	if t.offset != 0 || t.Dim0() != len(ids) {
		panic(fmt.Sprintf("kernels: %d rows of groups to rows from %d on of %v", len(ids), t.offset, t.Shape))
	}
	if from.offset > 0 {
		ids = slices.Clone(ids)
		for i := range ids {
			ids[i] += int32(from.offset)
		}
	}
	capacity := t.groups.capacity
	*t.groups = *from.groups.kept(ids, anew)
	t.groups.capacity = capacity
}

// ReadColumns sets dst [dim, ld] to the rows [from, from+n) of keys in groups, one a column.
func (t *Tensor) ReadColumns(dst []float32, ld, from, n int) {
	t.groups.readColumns(dst, ld, t.offset+from, n)
}
