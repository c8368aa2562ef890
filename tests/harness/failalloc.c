/* SPDX-License-Identifier: Apache-2.0 */
typedef int ckpi_failalloc_placeholder;
