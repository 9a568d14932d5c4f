package simd

import (
	"math"
	"sync"
	"unsafe"

	"glimpse/internal/parallel"
)

// storage is the type of the elements of b.
type storage uint8

const (
	f32 storage = iota
	bf16
	f16
)

// size is the number of bytes of one element.
func (s storage) size() int {
	if s == f32 {
		return 4
	}
	return 2
}

const (
	// maxDepth bounds the part of k that one panel covers: 32 columns of it fill the
	// level-1 cache of 48 KiB together with a tile's rows of a.
	maxDepth = 256
	// maxColumns is the width of the widest panel of any level.
	maxColumns = 32
	// taskWork is the number of multiply-adds below which a task is not worth
	// handing to another thread (about a microsecond).
	taskWork = 64 << 10
	// fewWork is the same of dot products of few rows. A thread has one task of them, or up to threadTasks of at least
	// largeWork, so that no thread waits long for another.
	fewWork, largeWork, threadTasks = 32 << 10, 128 << 10, 32
	// maxTasks bounds the tasks of other products. They must be many enough for the
	// threads of any machine, because the split cannot depend on their number.
	maxTasks = 64
	// rowUnit is what blocks of rows are a multiple of: the rows of a tile are 12 or 6.
	rowUnit = 12
	// minRows and maxRows bound a block of rows: below, packing a panel per block
	// costs too much; above, a block of a [rows, maxDepth] takes more than a quarter
	// of a level-2 cache of 1 MiB.
	minRows, maxRows = 4 * rowUnit, 22 * rowUnit
	// copyStride is the row stride from which on a block of a is copied before use:
	// rows a page or more apart share few cache sets and need an address translation
	// each.
	copyStride = 1024
	// dotColumns is what blocks of columns are a multiple of where dot products are
	// used, and the number of rows of b that all rows of a are multiplied by while
	// they are in the level-2 cache.
	dotColumns = 8
	// maxDotRows is the number of rows of a up to which a·bᵀ is made of dot products, from a depth
	// of leastDots on, where adding up a register takes little of the time. Each row has the same
	// bits among any number of them.
	maxDotRows = 16
	leastDots  = 32
	// maxDotColumns is the number of columns of b up to which products are made of dot
	// products: a panel of so few does most of its work on columns that are not there.
	maxDotColumns = 16
	// turnedDepth is the part of k that is transposed at a time where dot products need
	// the columns of b as rows.
	turnedDepth = maxRows * (maxDepth + 16) / maxDotColumns
	// rowsBytes is the memory of a task for rows of a.
	rowsBytes = maxRows * (maxDepth + 16) * 4
	// leastTurned is the depth below which packTransposed would write past it.
	leastTurned = 16
)

// product is one matrix product c = alpha·a·b + beta·c, a [k, m] if tn, b [n, k] if
// nt. Its operands have been checked: the pointers are valid for the shapes.
type product struct {
	nt, tn      bool
	terms       int  // products of bfloat16 pairs that stand for one: 1 where a is rounded, 2 or 3 where it is split; 0: there are no pairs
	inBlocks    bool // b is read as it is, in blocks
	inBytes     bool // b's blocks are multiplied as panels of bytes
	storage     storage
	blocks      *Blocks // how b is stored, if not as storage, which its elements are rounded to
	level       int
	m, n, k     int
	alpha, beta float32
	a           *float32
	b           unsafe.Pointer
	c           *float32
	lda         int
	ldb         int
	ldc         int

	rows, columns int // of a block: the part of c that is one task
	columnBlocks  int
	narrow        *narrowed  // a, if of pairs
	quantised     *quantised // a, if it is multiplied by integers
}

// job is a product that is shared with other threads. Jobs are reused, so that a
// product allocates nothing.
type job struct {
	product
	run, toNarrow, toQuantise func(task int)
}

var jobs = sync.Pool{New: func() any {
	j := new(job)
	j.run, j.toNarrow, j.toQuantise = j.product.task, j.product.narrowTask, j.product.quantiseTask
	return j
}}

func multiply(p product) {
	if p.m == 0 || p.n == 0 {
		return
	}
	if p.k == 0 {
		c := unsafe.Slice(p.c, (p.m-1)*p.ldc+p.n)
		for i := range p.m {
			scaleOrClear(p.beta, c[i*p.ldc:i*p.ldc+p.n])
		}
		return
	}
	if p.terms > 0 && p.k%2 == 1 { // the last depth has none to pair with
		last, row := p, p.ldb*p.storage.size()
		if f := p.blocks; f != nil {
			row = p.ldb / f.Elems * f.Bytes
		}
		p.k--
		last.terms, last.k, last.beta, last.a, last.b = 0, 1, 1, p.blockOfA(0, p.k), unsafe.Add(p.b, p.k*row)
		multiply(p)
		multiply(last)
		return
	}
	p.level = level
	tasks := p.splitTasks()
	if tasks == 1 && p.terms == 0 && !p.inBlocks && !p.inBytes {
		p.multiplyBlock(0, p.m, 0, p.n)
		return
	}
	j := jobs.Get().(*job)
	j.product = p
	switch {
	case p.terms > 0:
		j.multiplyPaired(tasks)
	case p.inBlocks || p.inBytes:
		j.multiplyBlocks(tasks)
	default:
		parallel.For(tasks, j.run)
	}
	j.product = product{} // keep no operand alive
	jobs.Put(j)
}

// scaleOrClear sets x to beta·x, without reading it if beta is 0.
func scaleOrClear(beta float32, x []float32) {
	if beta == 0 {
		clear(x)
		return
	}
	Scale(beta, x)
}

// splitTasks chooses the blocks and returns their number: from the shape alone but for dot products, which no block changes.
// Threads share these equally, since they wait for memory: each reads on from where it was, and what its kernels fetch past
// the end of a task is what its next one begins with.
func (p *product) splitTasks() int {
	p.rows, p.columns, p.columnBlocks = p.m, p.n, 1
	wanted := 1
	// In floating point, because the product of three sizes may overflow.
	w := float64(p.m) * float64(p.n) * float64(p.k)
	if p.inBlocks || p.usesDots() {
		threads := float64(parallel.Threads())
		each := min(max(1, math.Floor(w/threads/largeWork)), threadTasks)
		wanted = max(1, int(min(w/fewWork, threads*each)))
		if p.n <= maxDotColumns && p.m > p.n && !p.inBlocks {
			p.rows = blockSize(p.m, wanted, rowUnit)
			for p.m > 1 && p.m%p.rows == 1 {
				p.rows += rowUnit
			}
			return blockCount(p.m, p.rows)
		}
		p.columns = blockSize(p.n, wanted, dotColumns)
		p.columnBlocks = blockCount(p.n, p.columns)
		return p.columnBlocks
	}
	if w /= taskWork; w >= maxTasks {
		wanted = maxTasks
	} else if w >= 2 {
		wanted = int(w)
	}
	// Square blocks copy least. Each block of rows packs the panels again.
	fewest := minRows
	if p.nt {
		fewest *= 2 // transposing costs more
	}
	if p.blocks != nil {
		fewest = maxRows // and widening as well
	}
	most := maxRows
	if p.terms > 0 || p.inBytes {
		fewest, most = maxRoundedRows, maxRoundedRows
	}
	rowBlocks := int(math.Sqrt(float64(wanted)*float64(p.m)/float64(p.n)) + 0.5)
	rowBlocks = max(1, min(rowBlocks, p.m/fewest))
	p.rows = min(blockSize(p.m, rowBlocks, rowUnit), most)
	rowBlocks = blockCount(p.m, p.rows)
	unit := maxColumns
	if p.blocks != nil && !p.nt {
		unit = widenedColumns // no block is widened for two tasks
	}
	p.columns = blockSize(p.n, max(1, wanted/rowBlocks), unit)
	p.columnBlocks = blockCount(p.n, p.columns)
	return rowBlocks * p.columnBlocks
}

// blockCount is the number of blocks of the given size that cover n.
func blockCount(n, size int) int { return (n + size - 1) / size }

// blockSize is the least multiple of unit such that at most count blocks of it cover n.
func blockSize(n, count, unit int) int { return blockCount(blockCount(n, unit), count) * unit }

// usesDots reports whether the product is made of dot products of rows.
func (p *product) usesDots() bool {
	switch {
	case p.terms > 0 || p.inBytes || p.tn:
		return false
	case !p.nt: // b has to be transposed first
		return p.n <= maxDotColumns && p.m > rowUnit
	}
	return p.n <= maxDotColumns || p.m <= maxDotRows && p.k >= leastDots
}

// task computes one block.
func (p *product) task(task int) {
	i, j := task/p.columnBlocks*p.rows, task%p.columnBlocks*p.columns
	p.multiplyBlock(i, min(i+p.rows, p.m), j, min(j+p.columns, p.n))
}

// multiplyBlock computes rows i0 ≤ i < i1 and columns j0 ≤ j < j1 of c. The order of
// additions within an element does not depend on the block.
func (p *product) multiplyBlock(i0, i1, j0, j1 int) {
	switch {
	case p.inBlocks:
		p.blocksBlock(j0, j1)
		return
	case p.inBytes:
		p.bytesBlock(i0, i1, j0, j1)
		return
	case p.usesDots() && p.nt:
		p.dots(i0, i1, j0, j1)
		return
	case p.usesDots():
		p.turnedDots(i0, i1, j0, j1)
		return
	case p.terms > 0:
		p.pairedBlock(i0, i1, j0, j1)
		return
	case p.inPlace():
		p.rowsBlock(i0, i1, j0, j1)
		return
	}
	s := p.scratch()
	defer scratches.Put(s)
	columns := panelColumns(p.level)
	depth := p.depth()
	for k0, beta := 0, p.beta; k0 < p.k; k0, beta = k0+depth, 1 {
		k := min(depth, p.k-k0)
		a, lda := p.blockOfA(i0, k0), p.lda
		if lda >= copyStride && i1-i0 >= minRows {
			a, lda = s.copyRows(a, lda, i1-i0, k, p.tn)
		}
		for j := j0; j < j1; j += columns {
			width := min(columns, j1-j)
			panel, stride := p.panel(s, columns, j, width, k0, k)
			multiplyPanel(p.level, p.tn, i1-i0, width, k, p.alpha, a, lda,
				panel, stride, beta, offset(p.c, i0*p.ldc+j), p.ldc)
		}
	}
}

// inPlace reports whether few rows are multiplied by b as it lies, or by blocks of it in float32.
func (p *product) inPlace() bool {
	_, _, unit := placeRows(p.level)
	return p.m <= maxDotRows && !p.nt && !p.tn && unit > 0 && p.n%unit == 0
}

// rowsBlock is block without panels. Its additions have the same order.
func (p *product) rowsBlock(i0, i1, j0, j1 int) {
	s := p.scratch()
	defer scratches.Put(s)
	rows, columns, _ := placeRows(p.level)
	depth := p.depth()
	for k0, beta := 0, p.beta; k0 < p.k; k0, beta = k0+depth, 1 {
		k := min(depth, p.k-k0)
		for j := j0; j < j1; j += widenedColumns {
			width := min(widenedColumns, j1-j)
			b, ldb, storage := p.b, width, f32
			if p.blocks != nil {
				b = s.decodeRows(p, k0, j, k, width)
			} else {
				b, ldb, storage = unsafe.Add(b, (k0*p.ldb+j)*p.storage.size()), p.ldb, p.storage
			}
			for at := 0; at < width; at += columns {
				for i := i0; i < i1; i += rows {
					multiplyRows(p.level, storage, min(rows, i1-i), min(columns, width-at), k, p.alpha, p.blockOfA(i, k0), p.lda,
						unsafe.Add(b, at*storage.size()), ldb, beta, offset(p.c, i*p.ldc+j+at), p.ldc)
				}
			}
		}
	}
}

// depth is the part of k that is summed up before it is added: even shares rather than a short last one, in whole
// vectors for packing.
func (p *product) depth() int { return blockSize(p.k, blockCount(p.k, maxDepth), 16) }

// blockOfA returns the start of row i of a at depth k.
func (p *product) blockOfA(i, k int) *float32 {
	if p.tn {
		return offset(p.a, k*p.lda+i)
	}
	return offset(p.a, i*p.lda+k)
}

// panel returns columns j … j+width of b for depths k0 … k0+k as float32 rows
// [k, columns] with the returned stride, either in place or copied to s. All
// columns of a row are readable; those from width on mean nothing.
func (p *product) panel(s *scratch, columns, j, width, k0, k int) (panel *float32, stride int) {
	switch {
	case p.nt:
		b, ldb := p.weights(s, j, k0, width, k)
		packTransposed(p.level, p.storage, s.panel, columns, b, ldb, width, k)
	default:
		b, ldb := p.weights(s, k0, j, k, width)
		if p.storage == f32 && width == columns && p.m <= rowUnit {
			return (*float32)(b), ldb // read once or twice: not worth a copy
		}
		pack(p.level, p.storage, s.panel, columns, b, ldb, width, k)
	}
	return s.panel, columns
}

// dots computes a block of a·bᵀ from dot products of rows: few rows of a with each
// group of rows of b, which thus comes from memory once.
func (p *product) dots(i0, i1, j0, j1 int) {
	var s *scratch
	rows := dotRows(p.level)
	group := dotColumns
	if p.blocks != nil {
		s = p.scratch()
		defer scratches.Put(s)
	} else if i1-i0 <= rows {
		group = j1 - j0 // nothing is read twice
	}
	for j := j0; j < j1; j += group {
		n := min(group, j1-j)
		b, ldb := p.weights(s, j, 0, n, p.k)
		for i := i0; i < i1; {
			m := min(rows, i1-i)
			multiplyDots(p.level, p.storage, m, n, p.k, p.alpha, p.blockOfA(i, 0), p.lda,
				b, ldb, p.beta, offset(p.c, i*p.ldc+j), p.ldc)
			i += m
		}
	}
}

// turnedDots computes a block of a·b from dot products with columns of b, which are
// few. Only the block's own are transposed.
func (p *product) turnedDots(i0, i1, j0, j1 int) {
	s := p.scratch()
	defer scratches.Put(s)
	s.needRows()
	turned := *p
	turned.nt, turned.storage, turned.blocks, turned.b, turned.c = true, f32, nil, unsafe.Pointer(s.rows), offset(p.c, j0)
	for k := 0; k < p.k; k += turnedDepth {
		turned.k = min(turnedDepth, p.k-k)
		turned.ldb = turned.k
		level := p.level
		if turned.k < leastTurned {
			level = portable
		}
		b, ldb := p.weights(s, k, j0, turned.k, j1-j0)
		packTransposed(level, p.storage, s.rows, turned.k, b, ldb, turned.k, j1-j0)
		turned.a = p.blockOfA(0, k)
		turned.dots(i0, i1, 0, j1-j0)
		turned.beta = 1
	}
}

func offset(x *float32, elements int) *float32 {
	return (*float32)(unsafe.Add(unsafe.Pointer(x), elements*4))
}

// scratch is the memory of one running task. Its arrays are used from a multiple of
// 64 bytes on, so that vectors do not straddle cache lines.
type scratch struct {
	panel, rows *float32
	panelMemory [maxDepth*maxColumns + 16]float32
	rowsMemory  []float32
	widened     widened
}

var scratches = sync.Pool{New: func() any {
	s := new(scratch)
	s.panel = aligned(&s.panelMemory[0])
	return s
}}

// scratch returns memory for a task of p.
func (p *product) scratch() *scratch {
	s := scratches.Get().(*scratch)
	s.widened.rows = 0 // it is of another product
	return s
}

// needRows gives s the memory at rows, which few products use and which is ten times that of a panel.
func (s *scratch) needRows() {
	if s.rowsMemory == nil {
		s.rowsMemory = make([]float32, rowsBytes/4+16)
		s.rows = aligned(&s.rowsMemory[0])
	}
}

func aligned(x *float32) *float32 {
	return offset(x, (64-int(uintptr(unsafe.Pointer(x))&63))/4)
}

// copyRows copies a block of a [rows, k], or [k, rows] if transposed, and returns the
// copy with its row stride.
func (s *scratch) copyRows(a *float32, lda, rows, k int, transposed bool) (*float32, int) {
	if transposed {
		rows, k = k, rows
	}
	s.needRows()
	stride := (k + 15) &^ 15
	for i := range rows {
		copy(unsafe.Slice(offset(s.rows, i*stride), k), unsafe.Slice(offset(a, i*lda), k))
	}
	return s.rows, stride
}
