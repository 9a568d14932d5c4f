package simd

//go:generate go -C ../../lab build -tags avo -o ../out/ ./simd ./simd/neon
//go:generate ../../out/simd -part product -out product_amd64.s -stubs product_amd64.go -pkg simd
//go:generate ../../out/simd -part vector -out vector_amd64.s -stubs vector_amd64.go -pkg simd
//go:generate ../../out/simd -part blocks -out blocks_amd64.s -stubs blocks_amd64.go -pkg simd
//go:generate ../../out/neon
